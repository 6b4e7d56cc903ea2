#include "sched/goals/speed_keeper.h"

#include <algorithm>
#include <cmath>

namespace tessera::sched {
namespace {

constexpr double kSpeedHalfLife = 4 * kSecond;  // several rounds of slices: shorter ones measure who was last
constexpr Nanos kDwell = kSecond;
constexpr double kDeadBand = 0.02;
constexpr double kLeastWork = 300 * kMillisecond;  // a speed of less is not acted upon

}  // namespace

void SpeedKeeper::Worked(double length, double solo, Nanos now) {
  const double fade = std::exp2(-static_cast<double>(std::max<Nanos>(0, now - faded_)) / kSpeedHalfLife);
  faded_ = std::max(faded_, now);
  length_ = length_ * fade + length;
  solo_ = solo_ * fade + solo;
}

void SpeedKeeper::Update(double most_pct, Nanos now) {
  if (now - updated_ >= kDwell && length_ >= kLeastWork) {
    updated_ = now;
    const double ratio = goal_.part() / std::max(speed(), 1e-3);
    if (std::abs(ratio - 1) > kDeadBand) request_pct_ *= std::sqrt(ratio);
    const bool too_slow = ratio > 1 / (1 - kDeadBand);
    if (!too_slow) short_since_ = kNever;
    if (too_slow && short_since_ == kNever) short_since_ = now;
  }
  request_pct_ = std::clamp(request_pct_, std::min(goal_.pct, most_pct), std::max(most_pct, 0.0));
}

}  // namespace tessera::sched
