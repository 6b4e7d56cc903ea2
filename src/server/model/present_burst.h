#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tessera::server {

// A vGPU's work between idle and idle of all its processes together.
struct Burst {
  Nanos begin = 0, end = 0;
  std::uint64_t submissions = 0;
};

// The burst of a vGPU that is under way. Figures of submissions are the sum of what its processes have counted;
// programs write these, so they may be anything. Times do not go backwards, but `since` may be before what was told
// earlier.
class PresentBurst {
 public:
  // A process has work at `now`.
  void Works(Nanos now, std::uint64_t submissions) {
    if (under_way_) return;
    under_way_ = true;
    burst_ = {.begin = now, .end = now, .submissions = submissions};
  }

  // A process has had none since `since`. Returns the burst if no other has work either.
  std::optional<Burst> Idle(Nanos since, bool others_work, std::uint64_t submissions) {
    if (!under_way_) return std::nullopt;
    burst_.end = std::max(burst_.end, since);
    if (others_work) return std::nullopt;
    under_way_ = false;
    return Burst{burst_.begin, burst_.end, submissions - std::min(submissions, burst_.submissions)};
  }

  // A process ended with its work, and no other has any: nobody knows when the burst would have ended.
  void Drop() { under_way_ = false; }

 private:
  bool under_way_ = false;
  Burst burst_;  // with the count of submissions at its begin
};

}  // namespace tessera::server
