#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::cli {

struct NvmlGpu {
  std::string name;
  unsigned minor = 0;      // of /dev/nvidiaN
  bool exclusive = false;  // its compute mode allows one process, or none
  bool divided = false;    // into MIG instances
};

struct NvmlFacts {
  std::string library;  // where it was found
  std::string driver_version;
  std::vector<NvmlGpu> gpus;
};

// Asks the driver's management library (NVML), not the one that Tessera puts in its place inside a vGPU. ENOENT if it
// is not installed, EIO if it fails.
Result<NvmlFacts> AskNvml();

}  // namespace tessera::cli
