#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/common.h"
#include "cli/json.h"

namespace tessera::cli {

// tessera evict PID|VGPU... [--to SIZE]: moves memory from the GPU to host memory, and returns when it is there. All
// targets are tried; each that fails has a line on stderr. 1 if one failed.
Result<int> Evict(const Common& common, const std::vector<std::string>& targets, const std::string& keep);

// How the evictions that the daemon began (the array in its answer) stand, by the array in GET /v1/processes. One of a
// process that has ended is done.
struct EvictionStanding {
  std::uint64_t left = 0;  // bytes that are still to be moved
  std::string error;       // why one of them has ended before all was moved; empty: none has
};
EvictionStanding StandingOf(const Json& evictions, const Json& processes);

}  // namespace tessera::cli
