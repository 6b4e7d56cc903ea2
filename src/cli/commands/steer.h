#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// tessera freeze|thaw PID|VGPU...: takes programs off their GPU while they keep their memory, and lets them go on. All
// targets are tried; each that fails has a line on stderr. 1 if one failed.
Result<int> Freeze(const Common& common, const std::vector<std::string>& targets);
Result<int> Thaw(const Common& common, const std::vector<std::string>& targets);

// tessera adopt PID --vgpu NAME: from now on the limits of the vGPU hold for a program that runs already.
Result<int> Adopt(const Common& common, const std::string& pid, const std::string& vgpu);

// The path in the API of what a word of the command line names: digits are a process, anything else a vGPU; so is what
// follows "vgpu:", for a vGPU whose name is digits. EINVAL or ERANGE for a word that can name neither.
Result<std::string> TargetPath(const std::string& word);

// "4711" as the id of a process. EINVAL or ERANGE.
Result<int> ParsePid(const std::string& text);

}  // namespace tessera::cli
