#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace tessera::plan {

// A point of a distribution: so many millionths of the values are at most `value`.
struct Quantile {
  std::uint32_t millionths = 0;
  std::int64_t value = 0;
};

// Random numbers that are the same for the same seed on every machine: what the standard says of std::mt19937_64, and
// integers from there on. Distributions of the standard library differ from one library to the next, and logarithms
// from one processor to the next. One thread at a time.
class PortableRandom {
 public:
  explicit PortableRandom(std::uint64_t seed) : engine_(seed) {}

  // 0 to `end` - 1, for an `end` above 0.
  std::uint32_t Below(std::uint32_t end) { return static_cast<std::uint32_t>((engine_() >> 32) * end >> 32); }
  // True so many times of a million.
  bool Chance(std::uint32_t millionths) { return Below(1'000'000) < millionths; }
  // By straight lines between the points, which ascend from 0 to 1,000,000 millionths.
  std::int64_t Of(std::span<const Quantile> points);
  // Exponentially distributed, with this mean: 0 to 2^53.
  std::int64_t Exponential(std::int64_t mean);
  // The index of one of the weights, as often as it says.
  std::size_t Pick(std::span<const std::uint32_t> weights);

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::plan
