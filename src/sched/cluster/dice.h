#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tessera::sched {

// Random numbers that are the same everywhere for the same seed: std::mt19937_64, and of each number the upper bits,
// by a product of 128 bits (Lemire, "Fast Random Integer Generation in an Interval", 2019, without its correction of
// 2^-64). The standard library's distributions and shuffles differ from one library to another.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  // In [0, count); `count` is above 0.
  std::size_t Below(std::size_t count) {
    return static_cast<std::size_t>(static_cast<unsigned __int128>(engine_()) * count >> 64);
  }
  // Any order is as likely (Fisher and Yates).
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (std::size_t left = values.size(); left > 1; --left) std::swap(values[left - 1], values[Below(left)]);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::sched
