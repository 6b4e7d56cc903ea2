#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::server {

// How a program says which vGPUs it joins: "NAME[,NAME…][:KEY]", as TESSERA_VGPU has it. The key is for all of them.
struct VGpuNames {
  std::vector<std::string_view> names;  // also empty ones; refers to the text
  std::string_view key;                 // empty: none
};
VGpuNames SplitNames(std::string_view text);

// Whether such names are for operators, because what they make on a node is known by them: those of jobs ("slurm-…"),
// of pods ("device-plugin.…") and of claims ("….UID", "….UID-N").
bool IsKeptName(std::string_view name);

// EINVAL unless `key` is [A-Za-z0-9_-]{16,64}, or empty for none.
Result<void> CheckKey(std::string_view key);

// Whether who says `said` may join a vGPU with this key; everybody may if it has none. How long that takes does not
// tell how much of it is right.
bool OpensWith(std::string_view key, std::string_view said);
// As an error for people: EACCES.
Result<void> CheckOpens(std::string_view vgpu, std::string_view key, std::string_view said);

}  // namespace tessera::server
