#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/model/vgpu.h"

namespace tessera::server {

// A request for a vGPU in the words of the API: absent fields stay as they are, or take their defaults.
struct VGpuRequest {
  std::optional<std::string> name;  // generated from `program` if absent
  std::optional<std::string> program;
  std::optional<std::string> gpu;  // "auto", index or UUID
  // Size, percentage of the GPU, or "max" for none.
  std::optional<std::string> memory_request, memory_limit, memory_max, memory_swap_max;
  std::optional<std::string> compute_request, compute_limit;  // percent
  std::optional<std::string> compute_weight;
  std::optional<std::string> compute_priority;
  std::optional<std::string> goal;      // as ParseGoal reads it, or "none"
  std::optional<std::string> gang;      // its name, or "none"
  std::optional<std::string> space;     // its name; only when it is made
  std::optional<std::string> sm_limit;  // percent
  std::optional<bool> sm_reserved;      // only when it is made
  std::optional<bool> sm_burst;
  std::optional<std::string> key;  // only when it is made
  std::optional<Labels> labels;    // instead of those that it has
  std::optional<bool> ephemeral;
  std::optional<pid_t> owner_pid;
  std::optional<bool> within_quota;   // the quota of the caller's user counts, though operators have none
  std::optional<std::string> if_tag;  // only if what is changed has this tag still (TagOf)
};

// EINVAL unless `name` is [A-Za-z0-9._-]{1,63} and not all dots.
Result<void> CheckName(std::string_view name);

// A name for the Nth vGPU of a program: "train.py-2". Characters that names may not contain become "-".
std::string NameFor(std::string_view program, unsigned n);

// Puts the request's figures into `spec`, for a GPU of `capacity` bytes whose memory is swapped, or is not. A
// memory_limit raises memory_max to it, and never lowers it, unless the request says what memory_max is. EINVAL or
// ERANGE with the field's name; ENOSPC for a memory_limit beyond the GPU.
Result<void> ApplyFigures(const VGpuRequest& request, std::uint64_t capacity, bool swaps, VGpuSpec& spec);

}  // namespace tessera::server
