#include "sched/bursts/length_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::sched {

void LengthHistogram::Add(Nanos length) {
  const auto us = static_cast<std::uint64_t>(std::max<Nanos>(0, length) / kMicrosecond);
  std::uint32_t& count = counts_.at(BucketOf(std::min(us, kMost)));
  if (count == UINT32_MAX) return;
  ++count;
  ++count_;
}

void LengthHistogram::Halve() {
  count_ = 0;
  for (std::uint32_t& count : counts_) {
    count /= 2;
    count_ += count;
  }
}

void LengthHistogram::Join(const LengthHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_.at(i) += other.counts_.at(i);
  count_ += other.count_;
}

Nanos LengthHistogram::Quantile(double part) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(part, 0.0, 1.0) * static_cast<double>(count_));
  const auto rank = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted));
  std::uint64_t seen = 0;
  std::size_t bucket = 0;
  for (; bucket + 1 < kBuckets; ++bucket) {
    seen += counts_.at(bucket);
    if (seen >= rank) break;
  }
  return static_cast<Nanos>(EdgeOf(bucket)) * kMicrosecond;
}

// Below 128 us each microsecond has a bucket of its own. From there on the six bits below the highest count.
std::size_t LengthHistogram::BucketOf(std::uint64_t us) {
  if (us < 2 * kPerDoubling) return us;
  const auto shift = static_cast<std::uint64_t>(std::bit_width(us)) - 7;
  return shift * kPerDoubling + (us >> shift);
}

std::uint64_t LengthHistogram::EdgeOf(std::size_t bucket) {
  if (bucket < 2 * kPerDoubling) return bucket + 1;
  const std::uint64_t shift = bucket / kPerDoubling - 1;
  return (bucket - shift * kPerDoubling + 1) << shift;
}

}  // namespace tessera::sched
