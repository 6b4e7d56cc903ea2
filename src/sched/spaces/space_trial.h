// Trial of the two ways in which the vGPUs of a space can share the GPU. docs/scheduler.md tells the rules.
#pragma once

#include <array>
#include <vector>

#include "base/clock.h"
#include "sched/spaces/space_choice.h"

namespace tessera::sched {

// Trials of one space: now and then its vGPUs run for a second at once and for a second in turns, and stay with what
// was better. Pure: its owner brings the figures at the deadline, and carries out mode() and short_queues(), which may
// change with each call. There is no trial unless a vGPU has a goal, two have work, and turns break no request. Times
// never go backwards. Not thread-safe.
class SpaceTrial {
 public:
  static constexpr Nanos kLeg = kSecond;
  static constexpr Nanos kFirstInterval = 10 * kSecond;
  static constexpr Nanos kLongestInterval = 600 * kSecond;

  // These are all vGPUs of the space. If one is new, gone or another than before, all begins anew, in the same mode if
  // that is possible.
  void SetMembers(std::vector<SpaceMember> members, Nanos now);
  // A vGPU's goal is missed that was kept: the next trial comes sooner.
  void GoalMissed(Nanos now);
  // Figures cannot be compared with those of before: a trial that is under way ends without an answer.
  void Abort(Nanos now);
  // To be called at the deadline, or at any time.
  void Advance(const SpaceFigures& figures, Nanos now);

  Nanos NextDeadline() const;  // kNever: none
  // The mode now.
  SpaceMode mode() const { return trying() ? leg_mode() : choice_.mode; }
  // Programs must have little work queued now: else the queue's length, and not the GPU's speed, would say how fast
  // submissions pass.
  bool short_queues() const { return trying(); }
  // The answer of the last trial.
  const SpaceChoice& choice() const { return choice_; }

 private:
  enum class Phase {
    kRests,
    kSettles,   // a leg has begun; what is under way belongs to the time before
    kMeasures,  // of a leg
  };

  bool trying() const { return phase_ != Phase::kRests; }
  SpaceMode leg_mode() const;
  bool MayTry() const;
  void BeginLeg(Nanos now);
  void Settle(const SpaceFigures& figures, Nanos now);
  void EndLeg(const SpaceFigures& figures, Nanos now);
  void Answer(Nanos now);
  void Rest(Nanos now);

  std::vector<SpaceMember> members_;
  SpaceChoice choice_;
  Nanos interval_ = kFirstInterval;
  Nanos ended_at_ = kNever;  // the last trial, with or without an answer; kNever: there was none

  Phase phase_ = Phase::kRests;
  Nanos next_ = kNever;  // the deadline
  std::size_t leg_ = 0;  // the first is in the chosen mode, and the second in the other one
  Nanos leg_begin_ = 0;
  std::array<SpaceLeg, 2> legs_;
};

}  // namespace tessera::sched
