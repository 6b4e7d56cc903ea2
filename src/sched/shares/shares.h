// The share of one GPU's time and SMs that a vGPU was promised, and the constants under which promises are kept.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::sched {

using VgpuId = std::uint32_t;

// Place of a vGPU in a space: vGPUs of one space run at the same time, as long as they need at most all SMs together.
struct SpacePlace {
  std::uint32_t number = 0;  // of the space, among those of one GPU. 0: in no space; it has the GPU alone
  double sm_pct = 100;       // part of the GPU's SMs that it uses at most, (0, 100]; 100 if it is in no space
  bool reserved = false;     // these SMs are its own, and begin at:
  double from_pct = 0;
  bool burst = false;     // it may use all SMs while no other vGPU of the space has programs; needs `reserved`
  bool in_turns = false;  // none runs beside it, whatever its SMs are. It may use no more of them for that

  // The SMs that others cannot use while it runs, %.
  double taken_pct() const { return in_turns ? 100 : sm_pct; }
  friend bool operator==(const SpacePlace&, const SpacePlace&) = default;
};

// Share of a GPU's time that a vGPU was promised.
struct Shares {
  double request_pct = 0;      // guaranteed when wanted, [0, limit_pct]
  double limit_pct = 100;      // never exceeded over the window, (0, 100]
  std::uint32_t weight = 100;  // share of the time that is guaranteed to no vGPU, [1, 10000]
  std::uint32_t priority = 8;  // class, [0, 15]; lower ones go first. Only Steering knows classes
  // How long all lower classes together may hold the GPU before the vGPU gets it back while it has work, [0, 1 s].
  // 0: they stand still meanwhile, unless SteeringConfig::patience says something else.
  Nanos patience = 0;
  bool strict = false;  // it has no patience at all, whatever SteeringConfig::patience says
  // It is measured when its work begins and ends: its processes have the least grace. Only Steering knows graces
  bool measured = false;
  // Little of its work is queued, although nobody waits. Only TokenServer knows queues
  bool short_queue = false;
  SpacePlace space;  // only TokenScheduler knows spaces
};

struct Config {
  Nanos window = 100 * kMillisecond;        // over which requests and limits hold
  Nanos min_slice = 2 * kMillisecond;       // shortest token worth its switch; at most window / 8
  Nanos drain_timeout = 50 * kMillisecond;  // a revoked holder that has not drained by then no longer blocks the others
};

// ERANGE for a number outside its range, EINVAL for a request above the limit.
Result<void> Validate(const Shares& shares);

}  // namespace tessera::sched
