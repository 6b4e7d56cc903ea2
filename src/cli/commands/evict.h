#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

// tessera evict PID|VGPU... [--to SIZE]: moves memory from the GPU to host memory. Returns when all is moved, or when
// nothing was moved for kPatience. All targets are tried; each failure is a line on stderr. 1 if one failed.
Result<int> Evict(const Common& common, const std::vector<std::string>& targets, const std::string& keep);

// The progress of evictions (the array in the daemon's answer), from the array in GET /v1/processes. The eviction of a
// process that has ended counts as done.
struct EvictionStanding {
  std::uint64_t left = 0;  // bytes that are still to be moved
  std::string error;       // why one of them ended early; empty: none did
};
EvictionStanding StandingOf(const client::Json& evictions, const client::Json& processes);

// How long to wait without progress. An eviction that makes progress may take as long as it needs.
inline constexpr Nanos kPatience = 30 * kSecond;
class Patience {
 public:
  // `left`: bytes that are still to be moved. False if kPatience has passed since they last got fewer.
  bool Lasts(std::uint64_t left, Nanos now);

 private:
  std::uint64_t left_ = UINT64_MAX;
  Nanos ends_ = 0;
};

}  // namespace tessera::cli
