#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "sched/goals/goals.h"
#include "server/record/histogram.h"

namespace tessera::server {

// "none" for kUnknown, "kept", "tight", "missed" or "cannot".
const char* NameOf(sched::Verdict::Kind verdict);

// The figures of a vGPU's bursts, and of its goal: plain data.
struct BurstReport {
  // Since the daemon began.
  std::uint64_t count = 0;
  std::uint64_t requests = 0;  // of which its programs told
  Histogram lengths;
  std::optional<Nanos> p50, p95, p99;  // none before the first burst
  std::optional<Nanos> solo_p50;  // of bursts that had the GPU to themselves, audits included; none: there was none

  // Since the vGPU has its goal.
  // While programs tell of requests, these stand for bursts here.
  std::optional<Nanos> attained_time;  // the goal's percentile of the last minute's bursts; none: no latency, no bursts
  std::optional<double> attained_pct;  // of the speed alone, in the last minute; none: no such goal, or not known yet
  std::uint64_t judged = 0;            // bursts that were held against a latency
  std::uint64_t violations = 0;        // of these, the longer ones
  sched::Verdict::Kind verdict = sched::Verdict::Kind::kUnknown;
  std::string reason;  // for people; empty: none is needed

  // [0, 1]
  double ViolatingPart() const {
    return judged == 0 ? 0 : static_cast<double>(violations) / static_cast<double>(judged);
  }
  // Adds how the vGPU stands with its goal.
  void Add(const sched::GoalReport& goal);
  // None: it has no goal, or nobody knows.
  std::optional<bool> GoalMet() const;
};

// The bursts of one vGPU since the daemon began. Belongs to the VGpu. About 15 KiB.
class Bursts {
 public:
  // A burst has ended.
  void Note(const sched::Burst& burst);
  // A program told of so many requests.
  void NoteRequests(std::size_t count) { requests_ += count; }
  BurstReport Report() const;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t requests_ = 0;
  Histogram lengths_;
  sched::LengthHistogram all_, alone_;  // finer
};

}  // namespace tessera::server
