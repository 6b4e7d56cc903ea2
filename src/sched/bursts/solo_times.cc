#include "sched/bursts/solo_times.h"

#include <cstdlib>

namespace tessera::sched {
namespace {

constexpr std::uint64_t kMostBursts = 512;  // from there on, old ones fade
constexpr double kFade = 0.95;              // of a class, for each new figure

}  // namespace

void SoloTimes::AddBurst(const Burst& burst) {
  if (burst.length() <= 0) return;
  if (lengths_.count() >= kMostBursts) {
    lengths_.Halve();
    over_target_ /= 2;
  }
  lengths_.Add(burst.length());
  if (burst.length() > target_) over_target_ += 1;
}

void SoloTimes::AddWork(const Burst& piece) {
  if (piece.submissions == 0 || piece.length() <= 0) return;
  Sums& sums = by_class_[piece.size_class()];
  sums.length = sums.length * kFade + static_cast<double>(piece.length());
  sums.submissions = sums.submissions * kFade + static_cast<double>(piece.submissions);
  ++figures_;
}

std::optional<double> SoloTimes::Of(std::uint64_t submissions) const {
  if (by_class_.empty()) return std::nullopt;
  const int wanted = Burst{.submissions = submissions}.size_class();
  auto nearest = by_class_.begin();
  for (auto it = by_class_.begin(); it != by_class_.end(); ++it) {
    if (std::abs(it->first - wanted) < std::abs(nearest->first - wanted)) nearest = it;
  }
  const Sums& sums = nearest->second;
  return static_cast<double>(submissions) * sums.length / sums.submissions;
}

}  // namespace tessera::sched
