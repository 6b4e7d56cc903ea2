#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// tessera freeze|thaw PID|VGPU...: takes programs off their GPU while they keep their memory, and lets them run again.
// All targets are tried; each failure is a line on stderr. 1 if one failed.
Result<int> Freeze(const Common& common, const std::vector<std::string>& targets);
Result<int> Thaw(const Common& common, const std::vector<std::string>& targets);

// tessera adopt PID --vgpu NAME: puts a running program into a vGPU, whose limits hold for it from now on.
Result<int> Adopt(const Common& common, const std::string& pid, const std::string& vgpu);

}  // namespace tessera::cli
