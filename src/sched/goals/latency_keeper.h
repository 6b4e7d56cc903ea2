#pragma once

#include <optional>

#include "base/clock.h"
#include "sched/goals/goal.h"
#include "sched/goals/goals_config.h"

namespace tessera::sched {

// Controller of one vGPU's latency goal: how strict the vGPU has to be with those that yield to it.
//
// The strictness s is in [0, 1]. After each burst s += gain x (e - violations aimed at), e = 1 if the burst violated
// its target or had to be rushed. As s begins at 1, the violations of n bursts are at most the allowed part of n while
// s stays below 1, whatever arrives; after a change for the worse there may be 1 / gain more. s becomes a patience,
// which falls from the most to the least by halves, and for long bursts is none at 1: the others stand still. For short
// ones it stays the least: the freeze that they would wait for takes longer than that, or never ends, and then a short
// burst every few milliseconds starves the others.
class LatencyKeeper {
 public:
  LatencyKeeper(const LatencyGoal& goal, const GoalsConfig& config);

  // A burst ended.
  void Ended(bool violated_or_rushed);
  // The program told of a request.
  void Told(bool violated);
  // So long a burst takes alone, at the goal's percentile. The first time, the strictness jumps to what this needs.
  void Learn(Nanos solo_quantile);
  // The goal is out of reach: the vGPU gets what costs the others little, and no more.
  void GiveUp(bool given_up) { given_up_ = given_up; }

  // [0, 1].
  double strictness() const { return strictness_; }
  // For Shares::patience; 0: the others stand still.
  Nanos patience() const;
  // When the others have to stop for the rest of a burst, so that it ends in time even if it is longer than most;
  // kNever if that would not help. `long_burst`: alone, most are shorter. `speed`: of the burst beside the others, (0,
  // 1].
  Nanos RushAt(Nanos begin, Nanos long_burst, double speed) const;

 private:
  void Count(bool violated, double gain, double aim);
  double StrictnessFor(Nanos patience) const;

  const LatencyGoal goal_;
  const GoalsConfig config_;
  double strictness_ = 1;
  bool learnt_ = false;
  bool long_ = false;  // bursts take much longer than a freeze
  bool given_up_ = false;
};

}  // namespace tessera::sched
