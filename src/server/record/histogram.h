#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tessera::server {

// How long things of a kind took, since the daemon began: what a Prometheus histogram tells. Fixed bounds, the same for
// all kinds, from a driver call to a move of a large program.
class Histogram {
 public:
  // Upper bounds, inclusive. Longer times are in the last bucket, which has none.
  static constexpr std::array<Nanos, 16> kBounds = {100 * kMicrosecond,
                                                    200 * kMicrosecond,
                                                    500 * kMicrosecond,
                                                    kMillisecond,
                                                    2 * kMillisecond,
                                                    5 * kMillisecond,
                                                    10 * kMillisecond,
                                                    20 * kMillisecond,
                                                    50 * kMillisecond,
                                                    100 * kMillisecond,
                                                    200 * kMillisecond,
                                                    500 * kMillisecond,
                                                    kSecond,
                                                    2 * kSecond,
                                                    5 * kSecond,
                                                    10 * kSecond};
  using Counts = std::array<std::uint64_t, kBounds.size() + 1>;

  void Note(Nanos duration) {
    const auto bound = std::ranges::lower_bound(kBounds, duration);
    ++counts_[static_cast<std::size_t>(bound - kBounds.begin())];
    sum_ += std::max<Nanos>(duration, 0);
  }

  const Counts& Buckets() const { return counts_; }  // each for itself, not summed up
  Nanos Sum() const { return sum_; }

 private:
  Counts counts_{};
  Nanos sum_ = 0;
};

}  // namespace tessera::server
