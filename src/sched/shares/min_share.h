#pragma once

#include <algorithm>

#include "base/clock.h"

namespace tessera::sched {

// Account of the time that starved classes are owed: those which higher classes would keep from running altogether. The
// time is saved up while they are starved, and spent in one block, in which they run beside the others. Not
// thread-safe.
class MinShare {
 public:
  explicit MinShare(double pct)
      : rate_(pct / 100), block_(std::max(rate_ * kPeriod, static_cast<double>(kLeastBlock))) {}

  // Brings the account to `now`. This may begin or end the block.
  void Pass(Nanos now) {
    const double elapsed = static_cast<double>(std::max<Nanos>(0, now - since_));
    since_ = std::max(since_, now);
    if (rate_ <= 0) return;
    if (!starved_) {
      saved_ = std::max(0.0, saved_ - elapsed);  // they have the GPU
      open_ = false;
    } else {
      saved_ = std::min(saved_ + elapsed * (rate_ - (open_ ? part_ : 0)), 2 * block_);
      open_ = open_ ? saved_ > kRounding : saved_ >= block_ - kRounding;
    }
  }

  // From now on some class is starved, or would be without the block. `part`: of the GPU, what all such classes get.
  void Set(bool starved, double part) {
    starved_ = starved;
    part_ = part;
  }

  bool open() const { return open_; }

  // When Pass has to be called at the latest.
  Nanos Deadline() const {
    if (rate_ <= 0 || !starved_) return kNever;
    if (!open_) return since_ + static_cast<Nanos>(std::max(0.0, block_ - saved_) / rate_) + 1;
    return part_ > rate_ + kLeastDifference ? since_ + static_cast<Nanos>(saved_ / (part_ - rate_)) + 1 : kNever;
  }

 private:
  static constexpr Nanos kPeriod = 500 * kMillisecond;
  static constexpr Nanos kLeastBlock = 5 * kMillisecond;
  static constexpr double kRounding = 1e3;
  static constexpr double kLeastDifference = 1e-9;  // of parts: less is rounding

  const double rate_;
  const double block_;
  double saved_ = 0;
  double part_ = 0;
  bool starved_ = false;
  bool open_ = false;
  Nanos since_ = 0;
};

}  // namespace tessera::sched
