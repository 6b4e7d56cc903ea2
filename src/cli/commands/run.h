#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/vgpu/settings.h"

namespace tessera::cli {

struct RunChoices {
  std::string vgpus;     // names of existing vGPUs, separated by commas; empty: make one for this program
  std::string name;      // name of the vGPU that is made; empty: the daemon derives it from the program
  unsigned gpus = 1;     // vGPUs to make, on as many GPUs
  bool guarded = false;  // --enforce kernel: the daemon checks the program's calls of the kernel driver
  VgpuSettings settings;
};

// Replaces this process by `program` inside its vGPUs (exec). Returns only on failure: the exit status 126 or 127 if
// the program cannot be executed, as env(1) does.
Result<int> RunProgram(const Common& common, const RunChoices& choices, const std::vector<std::string>& program);

}  // namespace tessera::cli
