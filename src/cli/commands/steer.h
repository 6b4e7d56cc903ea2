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

// The API path for a target on the command line: digits name a process, anything else a vGPU. "vgpu:NAME" is for a vGPU
// whose name is digits. EINVAL or ERANGE for a word that can name neither.
Result<std::string> TargetPath(const std::string& word);

// Reads a process ID. EINVAL.
Result<int> ParsePid(const std::string& text);

}  // namespace tessera::cli
