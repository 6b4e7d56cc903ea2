#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/vgpu/settings.h"

namespace tessera::cli {

struct RunChoices {
  std::string vgpus;     // names of existing vGPUs, comma-separated; empty: make one for this program
  std::string name;      // of the one that is made; empty: the daemon names it after the program
  bool guarded = false;  // --enforce kernel: the daemon answers the program's calls of the kernel driver
  VgpuSettings settings;
};

// Turns this process into `program`, inside its vGPUs. Returns only when that cannot be: with the exit status 126 or
// 127 when it is the program that is at fault, as env(1) does.
Result<int> RunProgram(const Common& common, const RunChoices& choices, const std::vector<std::string>& program);

}  // namespace tessera::cli
