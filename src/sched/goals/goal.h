// Goal of a vGPU: what it is promised of its own speed, whatever else runs on the GPU.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::sched {

// Promise that at least this part of a vGPU's bursts takes at most so long. A burst is work between idle and idle.
struct LatencyGoal {
  double percentile = 99;  // of the bursts, [50, 99.99]
  Nanos time = 0;          // a burst may take, [100 us, 1 h]

  // The part of the bursts that may take longer, (0, 0.5].
  double violations() const { return 1 - percentile / 100; }
  friend bool operator==(const LatencyGoal&, const LatencyGoal&) = default;
};

// Promise that a vGPU's bursts go at least at this part of the speed that they have with the GPU to themselves.
struct SpeedGoal {
  double pct = 0;  // [1, 100]

  double part() const { return pct / 100; }
  friend bool operator==(const SpeedGoal&, const SpeedGoal&) = default;
};

using Goal = std::variant<LatencyGoal, SpeedGoal>;

// "p99=20ms", "p99.9=500us", "speed=80%". EINVAL for anything else, ERANGE for a number outside its range.
Result<Goal> ParseGoal(std::string_view text);

// The text from which ParseGoal makes this goal: the shortest, with the largest unit that is not above the time.
std::string FormatGoal(const Goal& goal);

}  // namespace tessera::sched
