// In how many intervals those of a GPU asked for more than it can do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {

// One of the series of UseSeries: of all members, of one that leaves, of one that comes. None is null.
struct ChangedSeries {
  const std::int32_t* sum;
  const std::int32_t* minus;
  const std::int32_t* plus;
  std::int32_t operator[](std::size_t i) const { return sum[i] - minus[i] + plus[i]; }
};

// All equally long.
struct ChangedUse {
  ChangedSeries duty, memory, active, woken;
};

// What a GPU has: MiB of memory, and what it takes to move one, in UseSeries::kWholeInterval.
struct IntervalRoom {
  std::int32_t memory;
  float by_interval, by_turn;
  float most_moving;  // of the time in turns
};

IntervalRoom RoomOf(const FleetGpu& gpu);

// What all use of a GPU in one interval; as the sums of UseSeries.
struct IntervalUse {
  std::int32_t duty = 0, memory = 0, active = 0, woken = 0;

  void Add(const UseSeries& use, std::size_t at);
};

// By how much work and moves take longer than the interval, in UseSeries::kWholeInterval; not above 0: they do not.
float BeyondWhole(const IntervalUse& use, const IntervalRoom& room);

struct IntervalCounts {
  std::int32_t over = 0;    // intervals
  std::int64_t beyond = 0;  // in UseSeries::kWholeInterval
  std::int32_t most = 0;    // MiB in any interval

  friend bool operator==(const IntervalCounts&, const IntervalCounts&) = default;
};

// An interval is over if work and moves take longer than it lasts. Who begins to work is moved in, as far as it is out.
// Where those that work do not fit together, they take turns; these are longer where moves would take too much of them.
// The same on every processor. Any thread.
IntervalCounts CountIntervals(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room);
// The same without wide vectors, for tests.
IntervalCounts CountIntervalsPlainly(std::size_t intervals, const ChangedUse& use, const IntervalRoom& room);

}  // namespace tessera::sched
