#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "sched/bursts/solo_times.h"

namespace tessera::server {

// The burst of a vGPU that is under way: its work between idle and idle of all its processes together. Figures of
// submissions are the sum of what its processes have counted; programs write these, so they may be anything. Times do
// not go backwards, but `since` may be before what was told earlier.
class PresentBurst {
 public:
  // A process has work at `now`. `alone`: no other vGPU has any.
  void Works(Nanos now, std::uint64_t submissions, bool alone) {
    if (!alone) Share();
    drained_at_ = kNever;
    if (under_way_) return;
    under_way_ = true;
    burst_ = {.begin = now, .end = now, .submissions = submissions, .alone = alone};
  }

  // Those of the burst until now.
  std::uint64_t Submissions(std::uint64_t submissions) const {
    return submissions - std::min(submissions, burst_.submissions);
  }

  // Another vGPU has work.
  void Share() { burst_.alone = false; }

  // A process has had none since `since`. Returns the burst if no other has work either.
  std::optional<sched::Burst> Idle(Nanos since, bool others_work, std::uint64_t submissions) {
    if (!under_way_) return std::nullopt;
    drained_at_ = kNever;
    burst_.end = std::max(burst_.end, since);
    if (others_work) return std::nullopt;
    under_way_ = false;
    burst_.submissions = Submissions(submissions);
    return burst_;
  }

  // No process has had work since `since`, as the last one's gate closed: if work waits there, it says so at once, and
  // the burst goes on. Else Idle ends it.
  void Drain(Nanos since, Nanos now) {
    if (!under_way_) return;
    burst_.end = std::max(burst_.end, since);
    drained_at_ = now;
  }
  // When it was told of that; kNever: some work is under way, or none.
  Nanos DrainedAt() const { return drained_at_; }
  Nanos End() const { return burst_.end; }

  // A process ended with its work, and no other has any: nobody knows when the burst would have ended.
  void Drop() {
    under_way_ = false;
    drained_at_ = kNever;
  }

 private:
  bool under_way_ = false;
  Nanos drained_at_ = kNever;
  sched::Burst burst_;  // with the count of submissions at its begin
};

}  // namespace tessera::server
