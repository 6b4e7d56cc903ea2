#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "sched/bursts/length_histogram.h"
#include "sched/bursts/solo_times.h"

namespace tessera::sched {

// Figures of a vGPU's bursts in a span of time. Plain data.
struct BurstFigures {
  LengthHistogram lengths;
  std::uint64_t violations = 0;  // bursts longer than the target
  double worked = 0;             // ns with work of which the speed is known
  double solo = 0;               // ns that this work takes alone

  std::uint64_t bursts() const { return lengths.count(); }
  // Part of the speed alone, averaged by time; 1 if it is not known.
  double Speed() const { return worked > 0 && solo < worked ? solo / worked : 1; }
};

// Meter of one vGPU's bursts: their lengths, the violations of a target, and the speed beside the speed alone; since
// the start and in the last minute. Fixed memory (about 60 KiB). Not thread-safe; times never go backwards.
class BurstMeter {
 public:
  // A burst that is longer than `target` violates it; kNever: none does.
  explicit BurstMeter(Nanos target) : target_(target), solo_(target) {}

  // A piece of work ended, or was cut off a long burst: it counts for the speed. Returns the time that it takes alone,
  // ns; empty while that is not known.
  std::optional<double> AddWork(const Burst& piece, Nanos now);
  // A whole burst ended, whose pieces were added before. Returns whether it violated the target. `counts`: among the
  // lengths and violations.
  bool AddBurst(const Burst& burst, Nanos now, bool counts = true);
  // The program told of a request, which counts as a burst does.
  void AddRequest(Nanos latency, bool violated, Nanos now);
  // The lengths and violations so far count no longer.
  void ForgetLengths();

  const SoloTimes& solo() const { return solo_; }
  const BurstFigures& since_start() const { return since_start_; }
  // Of the last 45 to 60 s, if there was so much.
  BurstFigures LastMinute(Nanos now);
  // Part of the speed alone in the last 15 s or less.
  double RecentSpeed(Nanos now) { return Slot(now).Speed(); }
  // The GPU's time that the vGPU would need with the GPU to itself, as a part of the last minute.
  double Load(Nanos now);

 private:
  static constexpr Nanos kSlot = 15 * kSecond;
  static constexpr std::size_t kSlots = 4;

  BurstFigures& Slot(Nanos now);

  const Nanos target_;
  SoloTimes solo_;
  BurstFigures since_start_;
  std::array<BurstFigures, kSlots> slots_;
  std::int64_t slot_ = 0;  // the number of the present slot since time began
  Nanos began_ = kNever;   // the first work
};

}  // namespace tessera::sched
