#pragma once

#include <algorithm>

#include "base/clock.h"

namespace tessera::sched {

// Budget of driver calls: earned at a fixed rate up to a burst, and below zero after calls that could not wait. Not
// thread-safe; times never go backwards.
class CallBudget {
 public:
  // `per_second` > 0.
  CallBudget(double per_second, double burst) : rate_(per_second / kSecond), burst_(burst), left_(burst) {}

  void Spend(Nanos now, double calls) {
    Earn(now);
    left_ -= calls;
  }
  bool Has(Nanos now, double calls) {
    Earn(now);
    constexpr double kRounding = 1e-6;
    return left_ >= calls - kRounding;
  }
  // When it has so many, if none is spent until then; calls <= burst.
  Nanos When(Nanos now, double calls) {
    Earn(now);
    return now + (left_ >= calls ? 0 : static_cast<Nanos>((calls - left_) / rate_) + 1);
  }

 private:
  void Earn(Nanos now) {
    left_ = std::min(burst_, left_ + rate_ * static_cast<double>(std::max<Nanos>(0, now - earned_)));
    earned_ = std::max(earned_, now);
  }

  const double rate_;
  const double burst_;
  double left_;
  Nanos earned_ = 0;
};

}  // namespace tessera::sched
