#pragma once

#include <algorithm>

#include "base/clock.h"
#include "plan/model/random.h"

namespace tessera::plan {

// The daemon's timer for a scheduler's deadline: it rings up to `lateness` after it.
class LateTimer {
 public:
  explicit LateTimer(Nanos lateness) : lateness_(lateness) {}

  void Set(Nanos deadline, Nanos now, Random& random) {
    if (deadline == deadline_) return;
    deadline_ = deadline;
    rings_at_ = deadline == kNever ? kNever : std::max(deadline, now) + random.UpTo(lateness_);
  }
  Nanos RingsAt() const { return rings_at_; }
  // Whether it rings now. It has to be set again after that.
  bool Rings(Nanos now) {
    if (rings_at_ > now) return false;
    deadline_ = -1;
    rings_at_ = kNever;
    return true;
  }

 private:
  const Nanos lateness_;
  Nanos deadline_ = -1;
  Nanos rings_at_ = kNever;
};

}  // namespace tessera::plan
