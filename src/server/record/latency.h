#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "server/record/histogram.h"

namespace tessera::server {

// The durations of calls of a kind: of the last ones for percentiles, of all for a histogram.
class Latency {
 public:
  void Note(Nanos duration) {
    last_[count_++ % last_.size()] = duration;
    all_.Note(duration);
  }
  const Histogram& All() const { return all_; }
  std::uint64_t Count() const { return count_; }

  // The `percent`th percentile of the last 1024; 0 before the first.
  Nanos Percentile(double percent) const {
    const std::size_t held = std::min<std::size_t>(count_, last_.size());
    if (held == 0) return 0;
    std::vector<Nanos> sorted(last_.begin(), last_.begin() + static_cast<std::ptrdiff_t>(held));
    const auto index = std::min(held - 1, static_cast<std::size_t>(percent / 100 * static_cast<double>(held)));
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(index));
    return sorted[index];
  }

 private:
  std::array<Nanos, 1024> last_{};
  std::size_t count_ = 0;
  Histogram all_;
};

// How many calls were made in the last full second.
class CallRate {
 public:
  void Note(Nanos now) {
    Advance(now);
    ++now_;
  }
  double PerSecond(Nanos now) const {
    const Nanos second = now / kSecond;
    if (second == second_) return static_cast<double>(before_);
    return second == second_ + 1 ? static_cast<double>(now_) : 0;
  }

 private:
  void Advance(Nanos now) {
    const Nanos second = now / kSecond;
    if (second == second_) return;
    before_ = second == second_ + 1 ? now_ : 0;
    now_ = 0;
    second_ = second;
  }
  Nanos second_ = 0;
  std::uint64_t now_ = 0, before_ = 0;
};

}  // namespace tessera::server
