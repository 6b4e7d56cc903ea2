#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace tessera::sched {

// Histogram of lengths of time from a microsecond to an hour, in fixed memory: 64 buckets for each doubling, so that a
// length is known within 1.6 %.
class LengthHistogram {
 public:
  void Add(Nanos length);
  // Takes half of each count away, so that what comes later weighs more.
  void Halve();
  void Join(const LengthHistogram& other);

  std::uint64_t count() const { return count_; }
  // The length that this part of all, in (0, 1], did not exceed, rounded up to the edge of its bucket; 0 if there is
  // none.
  Nanos Quantile(double part) const;

 private:
  static constexpr std::uint64_t kPerDoubling = 64;
  static constexpr std::uint64_t kMost = (1ull << 32) - 1;  // us
  static constexpr std::size_t kBuckets = (32 - 6 + 1) * kPerDoubling;

  static std::size_t BucketOf(std::uint64_t us);
  static std::uint64_t EdgeOf(std::size_t bucket);

  std::array<std::uint32_t, kBuckets> counts_{};
  std::uint64_t count_ = 0;
};

}  // namespace tessera::sched
