// The NVIDIA driver's files that a program in a container needs, for containers that do not get them elsewhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cdi/spec.h"

namespace tessera::cdi {

// All paths are the machine's, whatever the root.
struct DriverFiles {
  std::map<std::string, std::string> node_of;  // by the GPU's UUID: /dev/nvidia0
  std::vector<std::string> nodes;              // for all GPUs: /dev/nvidiactl ...
  std::vector<Mount> libraries;                // to kContainerDriver, under the names that programs load
};

// The file that `path` is on the machine whose root is at `root` here (empty: it is this one's), links followed as they
// lead there. Empty if there is none.
std::string FileOfMachine(const std::string& root, const std::string& path);

// Looks at /proc/driver/nvidia, /dev and the library directories, of the machine whose root is at `root` here. ENOENT
// if no driver is loaded, or its libcuda.so.1 is in no usual directory.
Result<DriverFiles> FindDriverFiles(const std::string& root = "");

// Adds the driver's libraries, and to each device the node of its GPU. `root` as above. ENOENT as above, or for a GPU
// that the driver does not know.
Result<void> AddDriver(SpecFacts& facts, const std::string& root = "");

}  // namespace tessera::cdi
