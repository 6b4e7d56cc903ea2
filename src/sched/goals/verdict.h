#pragma once

#include <string>

#include "base/clock.h"
#include "sched/bursts/burst_meter.h"
#include "sched/bursts/solo_times.h"
#include "sched/goals/goal.h"
#include "sched/goals/speed_keeper.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// How a vGPU's goal is kept.
struct Verdict {
  enum class Kind {
    kUnknown,  // too few bursts yet
    kKept,
    kTight,   // kept, with nothing to spare
    kMissed,  // not kept, though it could be
    kCannot,  // out of reach
  };
  VgpuId vgpu = 0;
  Kind kind = Kind::kUnknown;
  std::string why;  // for people, with the figures; empty if kept
};

// Whether a burst with the GPU to itself misses the target too often: three at least, and twice as many as are allowed.
bool OutOfReach(const LatencyGoal& goal, const SoloTimes& solo);

// Whether so few requests are in time that it is not for the others' sake: the program tells of other time, too, say.
bool AreHopeless(const BurstFigures& requests);

// Whether so many of these bursts took longer than the target that it is no chance.
bool TooManyViolations(const LatencyGoal& goal, double bursts, double violations);

// `strictness`: of the goal's controller, [0, 1]; 0 if nobody gives way to it. `solo`: of its bursts; null: the figures
// are of requests, of which nobody knows how long they take alone.
Verdict JudgeLatency(VgpuId id, const LatencyGoal& goal, double strictness, const SoloTimes* solo,
                     const BurstFigures& last_minute);
// `most_pct`: the request that others leave it, %.
Verdict JudgeSpeed(VgpuId id, const SpeedGoal& goal, const SpeedKeeper& keeper, const BurstFigures& last_minute,
                   double most_pct, Nanos now);

}  // namespace tessera::sched
