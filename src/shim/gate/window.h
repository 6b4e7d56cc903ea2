// How much work may be queued on the GPU: additive increase, multiplicative decrease.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace tessera::shim {

// A bound on the number of submissions in flight, so that the work that is queued when the gate closes ends within a
// target time. It learns from markers: the time from a marker's submission until the GPU reaches it is the work before
// it.
// Pure arithmetic: no clock, no threads.
class Window {
 public:
  // Two submissions always fit, else the GPU would idle between any two kernels. If a long kernel runs over its time,
  // that becomes debt.
  static constexpr std::int64_t kSmallest = 2;
  static constexpr std::int64_t kLargest = 1 << 16;

  std::int64_t Size() const { return size_; }

  // A marker that was submitted at `submitted` was reached after `latency`. `limiting`: the window held submissions
  // back.
  void OnMarker(Nanos submitted, Nanos latency, Nanos target, bool limiting) {
    if (latency > target) {
      // Markers queued before the last decrease still tell of the larger window.
      if (submitted < decreased_at_) return;
      decreased_at_ = submitted + latency;
      probing_ = false;
      size_ = std::max(kSmallest, size_ / 2);
      step_ = std::max<std::int64_t>(1, size_ / 8);
    } else if (limiting && latency < target - target / 4) {
      size_ = std::min(kLargest, probing_ && latency < target / 2 ? size_ * 2 : size_ + step_);
    }
  }

  // Begins anew, with as little as there can be: submissions may take much longer from now on.
  void Restart() {
    *this = {};
    size_ = kSmallest;
  }

 private:
  std::int64_t size_ = 16;
  std::int64_t step_ = 1;
  Nanos decreased_at_ = 0;
  bool probing_ = true;  // until the first decrease the window doubles
};

}  // namespace tessera::shim
