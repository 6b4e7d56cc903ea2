#pragma once

#include "base/clock.h"
#include "sched/goals/goal.h"

namespace tessera::sched {

// Controller of one vGPU's speed goal: the request that makes it as fast as promised. The request is never below the
// promise; it rises above it by what switches and neighbours cost, at most once a second and not for less than 2 %.
class SpeedKeeper {
 public:
  explicit SpeedKeeper(const SpeedGoal& goal) : goal_(goal), request_pct_(goal.pct) {}

  // Work took `length`, and takes `solo` alone, ns.
  void Worked(double length, double solo, Nanos now);
  // To be called often, as about ten times a second. `most_pct`: the part of the GPU's time that others leave, %.
  void Update(double most_pct, Nanos now);

  // % of the GPU's time.
  double request_pct() const { return request_pct_; }
  // Whether any speed was measured yet.
  bool known() const { return length_ > 0; }
  // Part of the speed alone over the last seconds; 1 if it is not known.
  double speed() const { return length_ > 0 ? solo_ / length_ : 1; }
  // The speed has been below the promise, by more than the 2 % that nothing is done about, for so long.
  Nanos ShortFor(Nanos now) const { return short_since_ == kNever ? 0 : now - short_since_; }

 private:
  const SpeedGoal goal_;
  double request_pct_;
  double length_ = 0;  // both of the last seconds; older ones fade
  double solo_ = 0;
  Nanos faded_ = 0;
  Nanos updated_ = 0;
  Nanos short_since_ = kNever;
};

}  // namespace tessera::sched
