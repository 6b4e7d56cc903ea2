#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/installation.h"
#include "base/result.h"

namespace tessera::cli {

// What a program must be told to run inside its vGPUs.
struct ProgramPlace {
  Installation installation;
  std::string run_dir;
  std::vector<std::string> vgpus;      // names, at most one per GPU; none: the shim only stands between
  std::vector<std::string> gpu_uuids;  // of their GPUs
  bool soft = false;
  std::string soft_spec;  // empty: the soft GPU as it is
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables to set. `current` reads one that is set already (nullptr: not set): search paths are prepended to, and
// CUDA_VISIBLE_DEVICES is left as the user wants it. EINVAL if the place of the libraries cannot be said in LD_PRELOAD.
Result<Variables> ProgramVariables(const ProgramPlace& place, const std::function<const char*(const char*)>& current);

// Sets them in this process, for the program that it becomes.
Result<void> SetProgramVariables(const ProgramPlace& place);

}  // namespace tessera::cli
