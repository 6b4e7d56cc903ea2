#include "sched/fleet/interval_count.h"

#include <algorithm>

#include "base/processor/wide.h"
#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {
namespace {

[[gnu::always_inline]] inline float Beyond(const IntervalUse use, const IntervalRoom room) {
  constexpr float kWhole = UseSeries::kWholeInterval * 1.0005F;         // what was seen is rounded
  const std::int32_t out = std::max(0, use.memory - room.memory);       // is not on the GPU
  const std::int32_t in_turns = std::max(0, use.active - room.memory);  // of those that work
  const float moves = static_cast<float>(std::min(use.woken, out)) * room.by_interval +
                      std::min(static_cast<float>(in_turns) * room.by_turn, room.most_moving);
  return static_cast<float>(use.duty) + moves - kWhole;
}

// Local search spends its time here. No sum depends on the order of its parts, so that several intervals are computed
// at once.
[[gnu::always_inline]] inline IntervalCounts CountAll(std::size_t intervals, const ChangedUse use,
                                                      const IntervalRoom room) {
  std::int32_t over = 0, most = 0;
  std::int64_t beyond = 0;
  for (std::size_t i = 0; i < intervals; ++i) {
    const std::int32_t there = use.memory[i];
    const float more =
        Beyond({.duty = use.duty[i], .memory = there, .active = use.active[i], .woken = use.woken[i]}, room);
    over += more > 0 ? 1 : 0;
    beyond += static_cast<std::int32_t>(std::max(0.0F, more));
    most = std::max(most, there);
  }
  return {.over = over, .beyond = beyond, .most = most};
}

TESSERA_WIDE IntervalCounts CountWide(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  return CountAll(intervals, use, room);
}

}  // namespace

IntervalRoom RoomOf(const FleetGpu& gpu) {
  const auto part = [&](Nanos time) {  // of this time, in UseSeries::kWholeInterval, that it takes to move a MiB
    const double movable = gpu.move_bytes_per_second * static_cast<double>(time) / kSecond / (1 << 20);
    return movable > 0 ? static_cast<float>(UseSeries::kWholeInterval / movable) : 0;
  };
  return {.memory = static_cast<std::int32_t>(std::min<std::uint64_t>(gpu.memory >> 20, INT32_MAX)),
          .by_interval = part(gpu.interval),
          .by_turn = part(gpu.turn),
          .most_moving = static_cast<float>(gpu.most_moving * UseSeries::kWholeInterval)};
}

void IntervalUse::Add(const UseSeries& use, std::size_t at) {
  duty += use.duty[at];
  memory += use.memory[at];
  active += use.active[at];
  woken += use.woken[at];
}

float BeyondWhole(const IntervalUse& use, const IntervalRoom& room) { return Beyond(use, room); }

IntervalCounts CountIntervals(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  static const bool wide = HasWide();
  return wide ? CountWide(intervals, use, room) : CountAll(intervals, use, room);
}

IntervalCounts CountIntervalsPlainly(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room) {
  return CountAll(intervals, use, room);
}

}  // namespace tessera::sched
