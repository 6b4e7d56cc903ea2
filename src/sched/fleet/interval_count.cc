#include "sched/fleet/interval_count.h"

#include <algorithm>

#include "base/processor/wide.h"
#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {
namespace {

// Local search spends its time here. No sum depends on the order of its parts, so that several intervals are computed
// at once.
[[gnu::always_inline]] inline IntervalCounts CountAll(std::size_t intervals, const ChangedUse use,
                                                      const IntervalRoom room) {
  constexpr float kWhole = UseSeries::kWholeInterval * 1.0005F;  // what was seen is rounded
  std::int32_t over = 0, most = 0;
  std::int64_t beyond = 0;
  for (std::size_t i = 0; i < intervals; ++i) {
    const std::int32_t there = use.memory[i];
    const std::int32_t out = std::max(0, there - room.memory);               // is not on the GPU
    const std::int32_t in_turns = std::max(0, use.active[i] - room.memory);  // of those that work
    const float moves = static_cast<float>(std::min(use.woken[i], out)) * room.by_interval +
                        std::min(static_cast<float>(in_turns) * room.by_turn, room.most_moving);
    const float more_than_whole = static_cast<float>(use.duty[i]) + moves - kWhole;
    over += more_than_whole > 0 ? 1 : 0;
    beyond += static_cast<std::int32_t>(std::max(0.0F, more_than_whole));
    most = std::max(most, there);
  }
  return {.over = over, .beyond = beyond, .most = most};
}

TESSERA_WIDE IntervalCounts CountWide(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  return CountAll(intervals, use, room);
}

}  // namespace

IntervalCounts CountIntervals(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  static const bool wide = HasWide();
  return wide ? CountWide(intervals, use, room) : CountAll(intervals, use, room);
}

IntervalCounts CountIntervalsPlainly(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  return CountAll(intervals, use, room);
}

}  // namespace tessera::sched
