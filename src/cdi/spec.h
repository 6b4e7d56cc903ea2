// The text of a CDI specification: what a container engine adds to a container that is given a vGPU.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/installation.h"
#include "base/result.h"

namespace tessera::cdi {

// Fields stay in the order in which they are written, which is an order for people.
using Json = nlohmann::ordered_json;

// Where containers have what is ours.
inline constexpr const char* kContainerLibraries = "/opt/tessera/lib";
inline constexpr const char* kContainerDriver = "/opt/tessera/driver";
inline constexpr const char* kContainerRunDir = "/run/tessera";  // where a shim of root's looks without being told

// A file or folder of the machine's, at another place in the container.
struct Mount {
  std::string host, container;
  bool writable = false;
};

// A vGPU as a device that `--device tessera.dev/vgpu=NAME` gives.
struct Device {
  std::string vgpu;
  std::string gpu_uuid;
  std::vector<std::string> nodes;  // of its GPU, where the driver is included
};

// What all of the devices need, and they themselves.
struct SpecFacts {
  Installation installation;
  std::string run_dir;             // of the daemon
  bool soft = false;               // the soft driver takes the place of the real one
  std::string soft_name;           // $TESSERA_SOFT_NAME; empty: none
  std::vector<Mount> mounts;       // beside the libraries and the socket
  std::vector<std::string> nodes;  // of the driver as a whole
  bool driver = false;             // the driver's libraries are among the mounts, in kContainerDriver
  std::vector<Device> devices;
};

// Whether CDI allows the name of a vGPU as that of a device: letters and digits at both ends, dots, dashes and
// underscores between. EINVAL says why not.
Result<void> CheckDeviceName(const std::string& name);

// Of the lowest version that its fields need, so that older engines take it, too. Names must fit CheckDeviceName.
Json Spec(const SpecFacts& facts);

}  // namespace tessera::cdi
