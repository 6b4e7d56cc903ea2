#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "sched/goals/goal.h"
#include "server/model/present_burst.h"
#include "server/record/histogram.h"

namespace tessera::server {

struct VGpu;

// How a vGPU stands with its goal.
enum class GoalVerdict : std::uint8_t {
  kNone,  // it has no goal, or too few bursts to say
  kKept,
  kTight,  // kept, with nothing to spare
  kMissed,
  kCannot,  // nothing that the daemon may do would keep it
};

// "none", "kept", "tight", "missed" or "cannot".
const char* NameOf(GoalVerdict verdict);

// The figures of a vGPU's bursts, and of its goal. Plain data; belongs to the VGpu.
struct GoalReport {
  // Since the daemon began.
  std::uint64_t bursts = 0;
  Histogram lengths;
  std::optional<Nanos> p50, p95, p99;  // none before the first burst
  std::optional<Nanos> solo_p50;       // of bursts that had the GPU to themselves; none: not known yet

  // Since the vGPU has its goal.
  std::optional<Nanos> attained_time;  // the goal's percentile of the last minute's bursts; none: no latency, no bursts
  std::optional<double> attained_pct;  // of the speed alone, in the last minute; none: no such goal, or not known yet
  std::uint64_t judged = 0;            // bursts that were held against a latency
  std::uint64_t violations = 0;        // of these, the longer ones
  GoalVerdict verdict = GoalVerdict::kNone;
  std::string reason;  // for people; empty: none is needed

  // [0, 1]
  double ViolatingPart() const {
    return judged == 0 ? 0 : static_cast<double>(violations) / static_cast<double>(judged);
  }
};

// Counts a burst that has ended, and holds it against the goal if that is a latency.
void NoteBurst(GoalReport& report, const Burst& burst, const std::optional<sched::Goal>& goal);

// Takes the verdict into the vGPU's report. An event tells of it if it is another one than before.
void Judge(VGpu& vgpu, GoalVerdict verdict, std::string reason);

// Forgets what was found about the goal: the vGPU has another one, or none, from now on.
void ForgetGoal(GoalReport& report);

}  // namespace tessera::server
