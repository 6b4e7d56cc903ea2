#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include "base/clock.h"

namespace tessera::server {

// The time that a vGPU loses to waiting, for memory for example, as /proc/pressure/memory has it for a control group:
// exponentially decaying averages over wall time, and a sum. It is told when a wait begins and ends. Nothing changes
// between, so the averages are exact at any time without sampling.
class Pressure {
 public:
  struct Figures {
    double avg10 = 0, avg60 = 0, avg300 = 0;  // percent of about the last so many seconds
    Nanos total = 0;
  };

  // Whether the vGPU waits from `now` on. Times do not go backwards.
  void Note(Nanos now, bool waits) {
    if (waits == waits_) return;
    Advance(now);
    waits_ = waits;
  }

  Figures At(Nanos now) const {
    Pressure then = *this;
    then.Advance(now);
    return {100 * then.averages_[0], 100 * then.averages_[1], 100 * then.averages_[2], then.total_};
  }

 private:
  static constexpr std::array<Nanos, 3> kSpans = {10 * kSecond, 60 * kSecond, 300 * kSecond};

  void Advance(Nanos now) {
    const Nanos span = now - at_;
    if (span <= 0) return;
    at_ = now;
    if (waits_) total_ += span;
    for (std::size_t i = 0; i < kSpans.size(); ++i) {
      const double kept = std::exp(-static_cast<double>(span) / static_cast<double>(kSpans[i]));
      averages_[i] = kept * averages_[i] + (waits_ ? 1 - kept : 0);
    }
  }

  Nanos at_ = 0;
  bool waits_ = false;
  std::array<double, 3> averages_{};
  Nanos total_ = 0;
};

}  // namespace tessera::server
