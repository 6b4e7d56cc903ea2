#include "sched/goals/latency_keeper.h"

#include <algorithm>
#include <cmath>

namespace tessera::sched {
namespace {

// Of the violations that are allowed, the part that is aimed at: the rest is for chance.
constexpr double kAim = 0.8;
// Requests that queue are late together: those that are late at the greatest strictness already are not made up for.
constexpr double kRequestAim = 0.6;
// From this strictness on, the others stand still if bursts take so many times as long as a freeze.
constexpr double kStrict = 0.95;
constexpr Nanos kLong = 16;
// To spare when a burst is rushed.
constexpr Nanos kReserve = kMillisecond;

}  // namespace

LatencyKeeper::LatencyKeeper(const LatencyGoal& goal, const GoalsConfig& config) : goal_(goal), config_(config) {}

void LatencyKeeper::Ended(bool violated_or_rushed) { Count(violated_or_rushed, config_.gain, kAim); }
void LatencyKeeper::Told(bool violated) { Count(violated, config_.request_gain, kRequestAim); }

void LatencyKeeper::Count(bool violated, double gain, double aim) {
  const double excess = (violated ? 1 : 0) - aim * goal_.violations();
  strictness_ = std::clamp(strictness_ + gain * excess, 0.0, 1.0);
}

// The patience is the target less the burst alone, over the number of times that the burst waits for the others.
void LatencyKeeper::Learn(Nanos solo_quantile) {
  if (learnt_) return;
  learnt_ = true;
  long_ = solo_quantile >= kLong * config_.freeze_time;
  const Nanos waits = 1 + solo_quantile / config_.own_slice;
  strictness_ = StrictnessFor((goal_.time - config_.message_time - solo_quantile) / waits - 2 * config_.switch_time);
}

double LatencyKeeper::StrictnessFor(Nanos patience) const {
  if (patience <= config_.least_patience) return 1;
  const auto of = [&](Nanos time) { return static_cast<double>(time) / static_cast<double>(config_.most_patience); };
  return std::clamp(std::log(of(patience)) / std::log(of(config_.least_patience)), 0.0, 1.0);
}

// In steps, as each change costs calls to the driver.
Nanos LatencyKeeper::patience() const {
  if (long_ && !given_up_ && strictness_ >= kStrict) return 0;
  const double range = static_cast<double>(config_.most_patience) / static_cast<double>(config_.least_patience);
  const double halvings = std::ceil(strictness_ * std::log2(range) * 2) / 2;
  const auto patience = static_cast<Nanos>(static_cast<double>(config_.most_patience) * std::exp2(-halvings));
  return std::max(config_.least_patience, patience);
}

// The slack at a time is what is left of the target after the rest of a long burst, alone. Beside the others a burst
// goes at `speed`, so the slack falls by 1 - speed, and after the long burst should have ended, as time goes on.
Nanos LatencyKeeper::RushAt(Nanos begin, Nanos long_burst, double speed) const {
  if (given_up_ || !long_ || patience() <= config_.least_patience) return kNever;
  const double needed = static_cast<double>(config_.freeze_time + kReserve);
  const double left = static_cast<double>(goal_.time - long_burst) - needed;
  if (left <= 0) return begin;
  const double at = left / std::max(1 - speed, 1e-6);
  if (at * speed < static_cast<double>(long_burst)) return begin + static_cast<Nanos>(at);
  return begin + std::max<Nanos>(0, goal_.time - static_cast<Nanos>(needed));
}

}  // namespace tessera::sched
