#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

// tessera evict PID|VGPU... [--to SIZE]: moves memory from the GPU to host memory, and returns when it is there, or
// when nothing was moved for kPatience. All targets are tried; each that fails has a line on stderr. 1 if one failed.
Result<int> Evict(const Common& common, const std::vector<std::string>& targets, const std::string& keep);

// How the evictions that the daemon began (the array in its answer) stand, by the array in GET /v1/processes. One of a
// process that has ended is done.
struct EvictionStanding {
  std::uint64_t left = 0;  // bytes that are still to be moved
  std::string error;       // why one of them has ended before all was moved; empty: none has
};
EvictionStanding StandingOf(const client::Json& evictions, const client::Json& processes);

// How long it is waited for memory to be moved: as long as it is, however much that is.
inline constexpr Nanos kPatience = 30 * kSecond;
class Patience {
 public:
  // `left`: bytes that are still to be moved. False when kPatience has passed without fewer.
  bool Lasts(std::uint64_t left, Nanos now);

 private:
  std::uint64_t left_ = UINT64_MAX;
  Nanos ends_ = 0;
};

}  // namespace tessera::cli
