#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/json.h"

namespace tessera::cli {

// Settings of a vGPU as given on the command line; empty: not given.
struct VgpuSettings {
  std::string gpu;                  // "auto", index or UUID
  std::string memory;               // "20G" (limit), "20G:40G" (limit:max), "25%", "max"
  std::string memory_request;       // "20G", "25%", "0"
  std::string swap_max;             // "20G", "0", "max"
  std::string compute;              // "30" (request and limit) or "30:60" (request:limit), percent
  std::string weight;               // 1 to 10000
  std::string priority;             // 0 to 15, lower goes first
  std::string goal;                 // "p99=20ms", "speed=80%" or "none"; the daemon checks it
  std::string gang;                 // name, or "none"
  std::vector<std::string> labels;  // KEY=VALUE each, or "none" alone; the daemon checks them
  std::string space;                // name; only for one that is made
  std::string sm;                   // "30", percent of the GPU's SMs
  bool within_quota = false;        // refuse what the user's quota does not allow; only for one that is made
  bool reserve_sm = false;          // these are its own; only for one that is made
  std::optional<bool> sm_burst;

  bool Empty() const {
    return gpu.empty() && memory.empty() && memory_request.empty() && swap_max.empty() && compute.empty() &&
           weight.empty() && priority.empty() && goal.empty() && gang.empty() && labels.empty() && space.empty() &&
           sm.empty() && !reserve_sm && !sm_burst;
  }
};

struct ComputeShare {
  double request_pct = 0;
  double limit_pct = 100;
};

struct MemoryTerms {
  std::string limit;               // "max": all of the GPU
  std::optional<std::string> max;  // none: the daemon derives it from the limit
};

// EINVAL or ERANGE; messages quote the text.
Result<MemoryTerms> ParseMemory(const std::string& text);
Result<ComputeShare> ParseCompute(const std::string& text);
Result<int> ParseWeight(const std::string& text);
Result<int> ParsePriority(const std::string& text);
// Whether the daemon accepts the name: up to 63 letters, digits, '.', '_' and '-', not only dots.
Result<void> CheckName(const std::string& name);

// EINVAL or ERANGE for the first invalid setting.
Result<void> CheckSettings(const VgpuSettings& settings);

// The fields of a request to make or change a vGPU. The daemon parses sizes itself: only it knows the whole of 25 %.
Result<client::Json> RequestBody(const VgpuSettings& settings);

}  // namespace tessera::cli
