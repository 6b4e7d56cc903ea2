// The share of one GPU's time that a vGPU was promised, and the constants under which promises are kept.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::sched {

using VgpuId = std::uint32_t;

// Share of a GPU's time that a vGPU was promised.
struct Shares {
  double request_pct = 0;      // guaranteed when wanted, [0, limit_pct]
  double limit_pct = 100;      // never exceeded over the window, (0, 100]
  std::uint32_t weight = 100;  // share of the time that is guaranteed to no vGPU, [1, 10000]
  std::uint32_t priority = 8;  // class, [0, 15]; lower ones go first. Only Steering knows classes
};

struct Config {
  Nanos window = 100 * kMillisecond;        // over which requests and limits hold
  Nanos min_slice = 2 * kMillisecond;       // shortest token worth its switch; at most window / 8
  Nanos drain_timeout = 50 * kMillisecond;  // a revoked holder that has not drained by then no longer blocks the others
};

// ERANGE for a number outside its range, EINVAL for a request above the limit.
Result<void> Validate(const Shares& shares);

}  // namespace tessera::sched
