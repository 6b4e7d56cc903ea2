#include "plan/generate/portable_random.h"

#include <numeric>

namespace tessera::plan {

std::int64_t PortableRandom::Of(std::span<const Quantile> points) {
  const std::uint32_t at = Below(1'000'000);
  std::size_t i = 1;
  while (points[i].millionths <= at) ++i;
  const Quantile &low = points[i - 1], &high = points[i];
  return low.value + (high.value - low.value) * (at - low.millionths) / (high.millionths - low.millionths);
}

// Von Neumann's way, which compares and never takes a logarithm ("Various techniques used in connection with random
// digits", 1951): how long numbers fall decides whether the first of them is taken, or another unit is added.
std::int64_t PortableRandom::Exponential(std::int64_t mean) {
  for (std::int64_t whole = 0;; ++whole) {
    const std::uint64_t first = engine_() >> 32;
    std::uint64_t last = first;
    bool odd = true;  // so many numbers fall
    for (std::uint64_t next = engine_() >> 32; next < last; next = engine_() >> 32) {
      last = next;
      odd = !odd;
    }
    // In two halves, as the product of mean and a fraction of 32 bits may need more than 64.
    if (odd) {
      const auto part = static_cast<std::int64_t>(first);
      return whole * mean + (mean >> 32) * part + ((mean & 0xffffffff) * (part >> 1) >> 31);
    }
  }
}

std::size_t PortableRandom::Pick(std::span<const std::uint32_t> weights) {
  std::uint32_t at = Below(std::accumulate(weights.begin(), weights.end(), 0u));
  std::size_t index = 0;
  while (at >= weights[index]) at -= weights[index++];
  return index;
}

}  // namespace tessera::plan
