#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace tessera::server {

// The state of a vGPU on its GPU.
enum class Standing { kIdle, kWaiting, kRunning };

// The reason why a vGPU with work is kept off its GPU.
enum class WaitReason : std::uint8_t {
  kNone,
  kTurn,   // somebody else has the token, or a job on several GPUs the turn
  kLimit,  // it has had what its limit permits
  kClass,  // a higher class has work
};

// A log of one vGPU on its GPU: its present state, and how often and how long it was kept off, and by what.
class StandingLog {
 public:
  struct Figures {
    // Of waits for the GPU's time, by what made them begin.
    std::uint64_t throttled = 0;  // by its limit
    std::uint64_t preempted = 0;  // by others: while it had work, its turn ended, or a higher class came
    Nanos throttled_time = 0;
    Nanos with_work = 0;  // it ran, or waited for the GPU's time
  };

  struct Period {
    Standing standing = Standing::kIdle;
    WaitReason why = WaitReason::kNone;
    Nanos since = 0;  // 0: it was told nothing yet
  };
  const Period& Present() const { return present_; }

  // The state from `now` on. Returns the period that ends by that; nothing if nothing changed. Times do not go
  // backwards.
  std::optional<Period> Note(Nanos now, Standing standing, WaitReason why) {
    if (standing != Standing::kWaiting) why = WaitReason::kNone;
    if (standing == present_.standing && why == present_.why) return std::nullopt;
    figures_ = At(now);
    if (why == WaitReason::kLimit) ++figures_.throttled;
    if (why != WaitReason::kLimit && standing == Standing::kWaiting && present_.standing == Standing::kRunning)
      ++figures_.preempted;
    return std::exchange(present_, {standing, why, now});
  }

  Figures At(Nanos now) const {
    Figures figures = figures_;
    if (present_.why == WaitReason::kLimit) figures.throttled_time += now - present_.since;
    if (present_.standing != Standing::kIdle) figures.with_work += now - present_.since;
    return figures;
  }

 private:
  Period present_;
  Figures figures_;
};

}  // namespace tessera::server
