#pragma once

#include <cstdint>
#include <iterator>
#include <random>

namespace tessera::churn {

// Where all chance of one program comes from: the same seed, the same program.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t Word() { return random_(); }
  // From `least` to `most`, both included.
  std::uint64_t Number(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }
  bool OneIn(std::uint64_t count) { return Number(1, count) == 1; }
  // An element of something that is not empty.
  template <typename Elements>
  auto Any(Elements& elements) {
    return std::next(elements.begin(), static_cast<std::ptrdiff_t>(Number(0, elements.size() - 1)));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tessera::churn
