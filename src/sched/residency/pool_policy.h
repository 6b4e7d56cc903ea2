// How much host memory the mover of a GPU should have ready.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

// As much as has to go out soon, or is out: what is allocated beyond what fits, and what is on its way. Pinned host
// memory is made slowly, so the pool grows ahead of need. Never more than the pool may have.
std::uint64_t PoolNeeded(const ResidencyState& state);

// As much as could go out at all: what programs have that can be moved, as far as memory.swap.max allows; or what the
// operator has set. Never more than the pool may have.
std::uint64_t PoolWorthwhile(const ResidencyState& state);

// Bytes of host memory that the pool is to have.
struct PoolGoal {
  std::uint64_t needed = 0;    // as soon as can be
  std::uint64_t prepared = 0;  // at leisure; at least `needed`. What is not in use beyond that is given back
  bool prepares = false;       // a mover is wanted, though nothing may be needed yet
  bool is_short = false;       // the machine has too little memory for all that is worthwhile
  bool operator==(const PoolGoal&) const = default;
};

// Decides how much is prepared ahead of need, and when it is given back. One object serves one GPU: the same states at
// the same times give the same goals.
class PoolPolicy {
 public:
  // A program that ends soon is not worth the work.
  static constexpr Nanos kBeginsAfter = 2 * kSecond;
  // Programs come again, and making memory takes ten times as long as giving it back.
  static constexpr Nanos kKeepsFor = 60 * kSecond;
  // After the machine was short of memory.
  static constexpr Nanos kRestsFor = 60 * kSecond;
  // Hundredths of a percent of the time in which programs of the machine waited for memory: more is too much.
  static constexpr std::uint32_t kMostPressure = 1000;
  // Of what the pool could have, so much is left to others beside swap.floor: this part of it, and at least that. What
  // was prepared is given back when less than half of that is left.
  static constexpr std::uint64_t kMarginPart = 16;
  static constexpr std::uint64_t kLeastMargin = 1ull << 30;

  // `now` does not go back.
  const PoolGoal& Decide(const ResidencyState& state, Nanos now);
  // As it was decided last.
  const PoolGoal& Goal() const { return goal_; }
  // When to decide again if the state stays as it is; kNever. After the `now` of the last decision.
  Nanos NextLook() const { return next_look_; }

 private:
  void Keep(std::uint64_t wish, Nanos now);
  std::uint64_t Allowed(const PoolResidence& pool, std::uint64_t chunk, Nanos now);

  bool knows_ = false;       // it has decided before
  Nanos since_ = kNever;     // something has been worthwhile since then
  std::uint64_t kept_ = 0;   // what was worthwhile in the last minute
  Nanos falls_at_ = kNever;  // when that becomes less, unless it is worthwhile again before
  Nanos rests_until_ = 0;    // nothing more is prepared before then
  PoolGoal goal_;
  Nanos next_look_ = kNever;
};

}  // namespace tessera::sched
