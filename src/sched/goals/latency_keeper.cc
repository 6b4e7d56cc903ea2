#include "sched/goals/latency_keeper.h"

#include <algorithm>
#include <cmath>

namespace tessera::sched {
namespace {

// From here on the others stand still.
constexpr double kStrict = 0.95;
// Of the least patience. A new goal begins there: it costs the others little, and bursts can still be told apart, which
// they cannot if the grace of a strict class hides the gaps between them.
constexpr double kLeastPatience = 0.9;
// To spare when a burst is rushed.
constexpr Nanos kReserve = kMillisecond;

}  // namespace

LatencyKeeper::LatencyKeeper(const LatencyGoal& goal, const GoalsConfig& config)
    : goal_(goal), config_(config), strictness_(kLeastPatience) {}

void LatencyKeeper::Ended(bool violated_or_rushed) {
  const double excess = (violated_or_rushed ? 1 : 0) - goal_.violations();
  strictness_ = std::clamp(strictness_ + config_.gain * excess, 0.0, 1.0);
}

// What is left of the target beside the burst, over the times that it waits for the others.
void LatencyKeeper::Learn(Nanos solo_quantile) {
  if (learnt_) return;
  learnt_ = true;
  const Nanos waits = 1 + solo_quantile / config_.own_slice;
  strictness_ = StrictnessFor((goal_.time - solo_quantile) / waits - 2 * config_.switch_time);
}

double LatencyKeeper::StrictnessFor(Nanos patience) const {
  if (patience < config_.least_patience) return kStrict;
  const auto of = [&](Nanos time) { return static_cast<double>(time) / static_cast<double>(config_.most_patience); };
  return std::clamp(kLeastPatience * std::log(of(patience)) / std::log(of(config_.least_patience)), 0.0,
                    kLeastPatience);
}

// In steps, as each change costs calls to the driver.
Nanos LatencyKeeper::patience() const {
  if (!given_up_ && strictness_ >= kStrict) return 0;
  const double range = static_cast<double>(config_.most_patience) / static_cast<double>(config_.least_patience);
  const double halvings = std::round(std::min(1.0, strictness_ / kLeastPatience) * std::log2(range) * 2) / 2;
  const auto patience = static_cast<Nanos>(static_cast<double>(config_.most_patience) * std::exp2(-halvings));
  return std::max(config_.least_patience, patience);
}

// The slack at a time is what is left of the target after the rest of a long burst, alone. Beside the others a burst
// goes at `speed`, so the slack falls by 1 - speed, and after the long burst should have ended, as time goes on.
Nanos LatencyKeeper::RushAt(Nanos begin, Nanos long_burst, double speed) const {
  if (given_up_ || patience() == 0 || long_burst < 2 * config_.freeze_time) return kNever;
  const double needed = static_cast<double>(config_.freeze_time + kReserve);
  const double left = static_cast<double>(goal_.time - long_burst) - needed;
  if (left <= 0) return begin;
  const double at = left / std::max(1 - speed, 1e-6);
  if (at * speed < static_cast<double>(long_burst)) return begin + static_cast<Nanos>(at);
  return begin + std::max<Nanos>(0, goal_.time - static_cast<Nanos>(needed));
}

}  // namespace tessera::sched
