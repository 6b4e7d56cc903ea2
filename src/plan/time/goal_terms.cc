#include "plan/time/goal_terms.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::plan {

Result<sched::Shares> GoalTerms::Set(const Part& part, const sched::Shares& shares, Nanos now) {
  if (auto set = goals_.Set(part.vgpu, shares, part.goal, now); !set) return std::unexpected(set.error());
  Member& member = members_[part.vgpu];
  member.part = &part;
  member.shares = shares;
  member.shares.measured = part.goal.has_value();
  any_ |= part.goal.has_value();
  return member.shares;
}

void GoalTerms::Remove(const Part& part, Nanos now) {
  goals_.Remove(part.vgpu, now);
  members_.erase(part.vgpu);
  aside_.erase(part.vgpu);
  any_ = std::ranges::any_of(members_, [](const auto& entry) { return entry.second.part->goal.has_value(); });
}

// A submission of a real program takes about so long.
std::uint64_t GoalTerms::Submissions(const Part& part, Nanos since) {
  constexpr Nanos kSubmission = 100 * kMicrosecond;
  return static_cast<std::uint64_t>(std::max<Nanos>(1, (part.done - since) / kSubmission));
}

void GoalTerms::Began(const Part& part, Nanos now) {
  if (!any_) return;
  members_.at(part.vgpu).began_at = part.done;
  goals_.Began(part.vgpu, now);
}

void GoalTerms::Ended(const Part& part, Nanos ended, Nanos now) {
  if (!any_) return;
  Member& member = members_.at(part.vgpu);
  if (!member.began_at) return;
  const std::uint64_t submissions = Submissions(part, *member.began_at);
  member.began_at.reset();
  goals_.Ended(part.vgpu, ended, submissions, now);
}

void GoalTerms::Told(const Part& part, Nanos latency, Nanos now) {
  if (any_) goals_.Told(part.vgpu, std::array{latency}, now);
}

void GoalTerms::Advance(Nanos now) {
  for (const auto& [id, member] : members_) {
    if (member.began_at) goals_.Progress(id, Submissions(*member.part, *member.began_at), now);
  }
  goals_.Advance(now);
}

void GoalTerms::Tell(sched::Steering& steering, Nanos now) {
  if (!any_) return;
  for (const sched::Terms& terms : goals_.TakeTerms()) {
    sched::Shares& shares = members_.at(terms.vgpu).shares;
    shares.priority = terms.priority;
    shares.request_pct = terms.request_pct;
    shares.patience = terms.patience.value_or(0);
    shares.strict = terms.patience == 0;
    (void)steering.Update(terms.vgpu, shares, now);
  }
  (void)goals_.TakeVerdicts();  // reports have them
  std::set<sched::VgpuId> aside;
  for (const auto& [id, _] : members_) {
    if (goals_.Stands(id)) aside.insert(id);
  }
  if (aside == aside_) return;
  aside_ = std::move(aside);
  steering.SetAside(aside_, now);
}

}  // namespace tessera::plan
