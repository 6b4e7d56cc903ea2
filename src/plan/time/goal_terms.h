#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/result.h"
#include "plan/model/part.h"
#include "sched/goals/goals.h"
#include "sched/steering/steering.h"

namespace tessera::plan {

// Goals of the parts of one simulated GPU: tells sched::Goals what the daemon would, and gives its terms to Steering.
// Costs nothing while no part has a goal. Parts outlive it or are removed first.
class GoalTerms {
 public:
  // The shares for Steering: as they are, and measured if there is a goal. Errors as Goals::Set.
  Result<sched::Shares> Set(const Part& part, const sched::Shares& shares, Nanos now);
  void Remove(const Part& part, Nanos now);

  // A burst, as the daemon knows from the program's messages.
  void Began(const Part& part, Nanos now);
  void Ended(const Part& part, Nanos ended, Nanos now);

  // The program told that a burst took so long.
  void Told(const Part& part, Nanos latency, Nanos now);

  // A part has the GPU to itself, so that its speed alone is measured.
  bool Audits() const { return goals_.audited().has_value(); }
  // What has come of the part's goal; empty without one.
  std::optional<sched::GoalReport> ReportOf(const Part& part, Nanos now) { return goals_.ReportOf(part.vgpu, now); }

  // When Advance must be called at the latest; kNever.
  Nanos NextDeadline() const { return any_ ? goals_.NextDeadline() : kNever; }
  void Advance(Nanos now);
  // Gives Steering the terms that are new, and those that have to stand still.
  void Tell(sched::Steering& steering, Nanos now);

 private:
  struct Member {
    const Part* part = nullptr;
    sched::Shares shares;           // with the terms
    std::optional<Nanos> began_at;  // Part::done when its burst began; empty: it is in none
  };
  static std::uint64_t Submissions(const Part& part, Nanos since);

  sched::Goals goals_;
  std::map<sched::VgpuId, Member> members_;
  std::set<sched::VgpuId> aside_;
  bool any_ = false;  // a part has a goal
};

}  // namespace tessera::plan
