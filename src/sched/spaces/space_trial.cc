#include "sched/spaces/space_trial.h"

#include <algorithm>
#include <utility>

#include "sched/shares/admission.h"

namespace tessera::sched {
namespace {

constexpr Nanos kWarmUp = kSecond;  // after a change of the members
constexpr Nanos kAgain = kSecond;   // when fewer than two have work
constexpr Nanos kSettle = 100 * kMillisecond;
// A queue that had no bound ends within this time, or counts.
constexpr Nanos kLongestSettle = kSecond;
constexpr double kSameTime = 1e-3;  // % of the GPU's time

SpaceMode Other(SpaceMode mode) { return mode == SpaceMode::kAtOnce ? SpaceMode::kInTurns : SpaceMode::kAtOnce; }

bool Same(const SpaceMember& a, const SpaceMember& b) {
  return a.vgpu == b.vgpu && a.goal == b.goal && a.shares.space.sm_pct == b.shares.space.sm_pct &&
         a.shares.request_pct == b.shares.request_pct && a.shares.limit_pct == b.shares.limit_pct &&
         a.shares.weight == b.shares.weight && a.shares.priority == b.shares.priority;
}

}  // namespace

SpaceMode SpaceTrial::leg_mode() const { return leg_ == 0 ? choice_.mode : Other(choice_.mode); }

Nanos SpaceTrial::NextDeadline() const { return next_; }

// Requests that were admitted because they fit side by side could not be kept in turns.
bool SpaceTrial::MayTry() const {
  if (members_.size() < 2) return false;
  if (std::ranges::none_of(members_, [](const SpaceMember& member) { return member.goal.has_value(); })) return false;
  double in_turns = 0;
  std::vector<Shares> all;
  for (const SpaceMember& member : members_) {
    in_turns += member.shares.request_pct;
    all.push_back(member.shares);
  }
  return in_turns <= TimeNeeded(all) + kSameTime;
}

void SpaceTrial::SetMembers(std::vector<SpaceMember> members, Nanos now) {
  if (std::ranges::equal(members_, members, Same)) return;
  members_ = std::move(members);
  if (trying()) Rest(now);
  const bool may = MayTry();
  choice_ = {.mode = may ? choice_.mode : SpaceMode::kAtOnce};
  interval_ = kFirstInterval;
  next_ = may ? now + kWarmUp : kNever;
  // However often members change, a trial is rare.
  if (may && ended_at_ != kNever) next_ = std::max(next_, ended_at_ + kFirstInterval);
}

void SpaceTrial::GoalMissed(Nanos now) {
  if (trying() || next_ == kNever || ended_at_ == kNever) return;
  interval_ = kFirstInterval;
  next_ = std::min(next_, std::max(now, ended_at_ + kFirstInterval));
}

void SpaceTrial::Abort(Nanos now) {
  if (trying()) Rest(now);
}

void SpaceTrial::Advance(const SpaceFigures& figures, Nanos now) {
  if (now < next_) return;
  switch (phase_) {
    case Phase::kRests:
      if (std::ranges::count_if(figures.members, [](const auto& each) { return each.second.works; }) < 2) {
        next_ = now + kAgain;
      } else {
        leg_ = 0;
        BeginLeg(now);
      }
      break;
    case Phase::kSettles:
      Settle(figures, now);
      break;
    case Phase::kMeasures:
      EndLeg(figures, now);
      break;
  }
}

void SpaceTrial::BeginLeg(Nanos now) {
  phase_ = Phase::kSettles;
  leg_begin_ = now;
  next_ = now + kSettle;
}

// Before the first leg queues may be long, and it costs nothing to wait for their end. They are short before the second
// one.
void SpaceTrial::Settle(const SpaceFigures& figures, Nanos now) {
  const bool settled = std::ranges::all_of(
      figures.members, [this](const auto& each) { return !each.second.works || each.second.reached >= leg_begin_; });
  if (leg_ == 0 && !settled && now - leg_begin_ < kLongestSettle) {
    next_ = now + kSettle;
    return;
  }
  legs_[leg_].from = figures;
  phase_ = Phase::kMeasures;
  next_ = now + kLeg - kSettle;
}

void SpaceTrial::EndLeg(const SpaceFigures& figures, Nanos now) {
  legs_[leg_].to = figures;
  if (leg_ == 1) return Answer(now);
  if (BusyIn(legs_[0]).size() < 2) return Rest(now);
  leg_ = 1;
  BeginLeg(now);
}

void SpaceTrial::Answer(Nanos now) {
  const bool first_at_once = choice_.mode == SpaceMode::kAtOnce;
  auto choice = ChooseMode(members_, legs_[first_at_once ? 0 : 1], legs_[first_at_once ? 1 : 0], choice_.mode);
  if (choice) {
    const bool again = choice_.tried_at != kNever && choice->mode == choice_.mode;
    interval_ = again ? std::min(2 * interval_, kLongestInterval) : kFirstInterval;
    choice_ = std::move(*choice);
    choice_.tried_at = now;
  }
  Rest(now);
}

void SpaceTrial::Rest(Nanos now) {
  phase_ = Phase::kRests;
  legs_ = {};
  ended_at_ = now;
  next_ = now + interval_;
}

}  // namespace tessera::sched
