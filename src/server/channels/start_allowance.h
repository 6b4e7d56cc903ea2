#pragma once

#include <algorithm>

#include "base/clock.h"

namespace tessera::server {

// An allowance of time in which policy does not freeze a space, because programs of it start. A user who starts
// programs all the time must not keep the GPU by that: the allowance earns a tenth of the time, and saves kMost. Times
// do not go backwards.
class StartAllowance {
 public:
  static constexpr Nanos kMostStart = kSecond;  // a start takes 0.3 s (docs/hardware-log.md)
  static constexpr Nanos kMost = 5 * kSecond;

  // A program starts: the space is spared for kMostStart, or for what is left.
  void Begin(Nanos now) {
    left_ = std::min(kMost, left_ + (now - looked_at_) / 10);
    looked_at_ = now;
    const Nanos more = std::min(kMostStart - std::max<Nanos>(0, until_ - now), left_);
    left_ -= more;
    until_ = std::max(until_, now) + more;
  }
  // All have started.
  void End(Nanos now) {
    left_ += std::max<Nanos>(0, until_ - now);
    until_ = std::min(until_, now);
  }
  bool Spares(Nanos now) const { return now < until_; }

 private:
  Nanos left_ = kMost;
  Nanos looked_at_ = 0;
  Nanos until_ = 0;
};

}  // namespace tessera::server
