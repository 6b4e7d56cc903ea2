#pragma once

#include <optional>

#include "base/clock.h"
#include "sched/goals/goal.h"
#include "sched/goals/goals_config.h"

namespace tessera::sched {

// Controller of one vGPU's latency goal: how strict the vGPU has to be with those that yield to it.
//
// The strictness s is in [0, 1]. After each burst s += gain x (e - violations allowed), e = 1 if the burst violated its
// target or had to be rushed. While s is below 1, the sum of that is bounded by the range of s: so the violations of n
// bursts are at most the allowed part of n, and 1 / gain, whatever arrives. s becomes a patience: 1 is none (the others
// stand still), below that it doubles from the least to the most.
class LatencyKeeper {
 public:
  LatencyKeeper(const LatencyGoal& goal, const GoalsConfig& config);

  // A burst ended.
  void Ended(bool violated_or_rushed);
  // So long a burst takes alone, at the goal's percentile. The first time, the strictness jumps to what this needs.
  void Learn(Nanos solo_quantile);
  // The goal is out of reach: the vGPU gets what costs the others little, and no more.
  void GiveUp(bool given_up) { given_up_ = given_up; }

  double strictness() const { return strictness_; }
  bool learnt() const { return learnt_; }
  Nanos patience() const;
  // When the others have to stop for the rest of a burst, so that it ends in time even if it is longer than most;
  // kNever if that would not help. `long_burst`: alone, most are shorter. `speed`: of the burst beside the others, (0,
  // 1].
  Nanos RushAt(Nanos begin, Nanos long_burst, double speed) const;

 private:
  double StrictnessFor(Nanos patience) const;

  const LatencyGoal goal_;
  const GoalsConfig config_;
  double strictness_;
  bool learnt_ = false;
  bool given_up_ = false;
};

}  // namespace tessera::sched
