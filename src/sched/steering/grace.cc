#include "sched/steering/grace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::sched {
namespace {

// Short enough to follow a program into its next phase.
constexpr double kHalfLife = 5 * kSecond;
// Long enough that trying again is rare.
constexpr double kHiddenHalfLife = 10 * kSecond;
// Gaps that were watched for less than this say little about how often they come.
constexpr double kLeastSeen = 100 * kMillisecond;
// Gaps vary: a grace covers those of its bucket with this much to spare.
constexpr double kMargin = 1.1;

}  // namespace

Grace::Grace(Nanos least, Nanos most, Nanos cycle_cost) : cycle_cost_(static_cast<double>(cycle_cost)) {
  const double ratio = static_cast<double>(most) / static_cast<double>(least);
  for (std::size_t i = 0; i < kEdges; ++i) {
    const double power = static_cast<double>(i) / (kEdges - 1);
    edges_.at(i) = static_cast<Nanos>(std::round(static_cast<double>(least) * std::pow(ratio, power)));
  }
}

void Grace::Learn(Nanos gap, Nanos in_force, Nanos now) {
  const auto elapsed = static_cast<double>(std::max<Nanos>(0, now - learnt_));
  learnt_ = std::max(learnt_, now);
  const double fade = std::exp2(-elapsed / kHalfLife);
  const double hidden_fade = std::exp2(-elapsed / kHiddenHalfLife);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_.at(i);
    if (i < kEdges && edges_.at(i) <= in_force) {
      bucket = {bucket.count * hidden_fade, bucket.time * hidden_fade, bucket.seen};
    } else {
      const double seen = kHalfLife / std::numbers::ln2 * (1 - fade);
      bucket = {bucket.count * fade, bucket.time * fade, bucket.seen * fade + seen};
    }
  }

  const double length = static_cast<double>(std::max<Nanos>(0, gap));
  const auto above = std::ranges::find_if(edges_, [&](Nanos edge) { return length * kMargin <= edge; });
  Bucket& bucket = buckets_.at(static_cast<std::size_t>(above - edges_.begin()));
  bucket.count += 1;
  bucket.time += length;
  best_ = Best();
}

// The grace for which gaps cost the least per time.
std::size_t Grace::Best() const {
  const auto per_time = [](double sum, const Bucket& bucket) { return sum / std::max(bucket.seen, kLeastSeen); };
  double longer = 0;
  for (const Bucket& bucket : buckets_) longer += per_time(bucket.count, bucket);
  double waited = 0;
  double least = INFINITY;
  std::size_t best = 0;
  for (std::size_t i = 0; i < kEdges; ++i) {
    waited += per_time(buckets_.at(i).time, buckets_.at(i));
    longer -= per_time(buckets_.at(i).count, buckets_.at(i));
    const double cost = waited + longer * (static_cast<double>(edges_.at(i)) + cycle_cost_);
    constexpr double kRounding = 1e-6;
    if (cost < least - kRounding) {
      least = cost;
      best = i;
    }
  }
  return best;
}

}  // namespace tessera::sched
