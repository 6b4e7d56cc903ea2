#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/install/installation.h"
#include "base/result.h"

namespace tessera::cli {

// The data that a program needs to run inside its vGPUs.
struct ProgramPlace {
  Installation installation;
  std::string run_dir;
  std::vector<std::string> vgpus;      // names, at most one per GPU; none: the shim passes calls on
  std::vector<std::string> gpu_uuids;  // of their GPUs
  bool soft = false;
  std::string soft_spec;  // empty: the soft GPUs that exist
  // In a space: the directory of its MPS control daemon, and the percentage of the SMs that the program may use.
  std::string mps_pipes;  // empty: in no space
  double sm_limit_pct = 100;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// The environment variables for the program. `current` reads the present value (nullptr: not set): search paths are
// extended, and CUDA_VISIBLE_DEVICES stays if the user set it. EINVAL if LD_PRELOAD cannot hold the libraries' path.
Result<Variables> ProgramVariables(const ProgramPlace& place, const std::function<const char*(const char*)>& current);

// Sets them in this process, which is about to become the program.
Result<void> SetProgramVariables(const ProgramPlace& place);

}  // namespace tessera::cli
