#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "sched/bursts/length_histogram.h"

namespace tessera::sched {

// Piece of a vGPU's work without a pause: a burst, or a part of a long one.
struct Burst {
  Nanos begin = 0;
  Nanos end = 0;
  std::uint64_t submissions = 0;
  bool alone = false;  // the vGPU had the GPU to itself

  Nanos length() const { return end - begin; }
  // Bursts of a like size: log2 of the submissions.
  int size_class() const { return std::bit_width(submissions); }
};

// Record of how long a vGPU's work takes with the GPU to itself. Old figures fade, as the speed alone drifts with
// clocks and input.
class SoloTimes {
 public:
  // A longer burst is over the target.
  explicit SoloTimes(Nanos target) : target_(target) {}

  // A whole burst that was alone. Its work is added by itself.
  void AddBurst(const Burst& burst);
  // Work that was alone: a burst, or a piece of one.
  void AddWork(const Burst& piece);

  // Time that so much work takes alone, ns: by bursts of the same size if there are any, else of the nearest. Empty
  // while nothing is known.
  std::optional<double> Of(std::uint64_t submissions) const;

  // Of whole bursts.
  std::uint64_t bursts() const { return lengths_.count(); }
  double over_target() const { return over_target_; }
  Nanos Quantile(double part) const { return lengths_.Quantile(part); }
  std::uint64_t figures() const { return figures_; }  // bursts and pieces since the start

 private:
  struct Sums {
    double length = 0;  // ns
    double submissions = 0;
  };

  const Nanos target_;
  LengthHistogram lengths_;
  double over_target_ = 0;
  std::map<int, Sums> by_class_;
  std::uint64_t figures_ = 0;
};

}  // namespace tessera::sched
