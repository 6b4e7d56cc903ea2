// Goals of the vGPUs of one GPU: what each is promised of its own speed, and the terms under which the time is divided
// so that the promises are kept.
//
// A controller above Steering, and pure as that is: events go in, terms come out. docs/scheduler.md tells the rules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/bursts/burst_meter.h"
#include "sched/goals/auditor.h"
#include "sched/goals/goal.h"
#include "sched/goals/goal_state.h"
#include "sched/goals/goals_config.h"
#include "sched/goals/verdict.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Report of one vGPU's goal, for people.
struct GoalReport {
  Goal goal;
  Verdict verdict;
  BurstFigures last_minute;
  BurstFigures since_start;
  Nanos solo_median = 0;          // of bursts alone; 0 while not known
  std::uint64_t solo_bursts = 0;  // how many of these there are
};

// Controller of one GPU's goals.
//
// Its owner tells it all vGPUs, with and without a goal, and all their bursts. After each event the owner takes the
// terms, and keeps those from running that must stand still. At the deadline it calls Progress for every vGPU that has
// work, then Advance. Without a goal nothing comes out, and no deadline. Times never go backwards. Not thread-safe.
class Goals {
 public:
  explicit Goals(GoalsConfig config = {});
  ~Goals();

  // Adds the vGPU, or changes it; `shares` as configured: it has these from now on, but for the terms that come out.
  // ENOSPC: a goal could not be kept then; the error names it. A change that needs no more than before always fits.
  // EINVAL: the vGPU's own limit is below its goal. ERANGE and EINVAL of Validate. A failure changes nothing.
  Result<void> Set(VgpuId id, const Shares& shares, const std::optional<Goal>& goal, Nanos now,
                   const Backing& backing = {});
  void Remove(VgpuId id, Nanos now);

  // A burst of the vGPU begins; it ended at `ended`, with so many submissions in all. Messages of vGPUs that are not
  // known or in no burst are ignored, and `ended` is clipped to what can be true.
  void Began(VgpuId id, Nanos now);
  void Ended(VgpuId id, Nanos ended, std::uint64_t submissions, Nanos now);
  // The vGPU's program tells that its requests took so long: for a minute from now on, a latency goal is judged and
  // kept by such requests, and not by bursts. Ignored without one.
  void Told(VgpuId id, std::span<const Nanos> latencies, Nanos now);
  // The burst ended, and nobody knows when, or how much it was: it does not count.
  void Dropped(VgpuId id, Nanos now);
  // The burst goes on; it has had so many submissions. Cuts long bursts into pieces, so that their speed is known.
  void Progress(VgpuId id, std::uint64_t submissions, Nanos now);
  void Advance(Nanos now);

  // When Advance must be called at the latest; kNever if nothing is pending.
  Nanos NextDeadline() const { return deadline_; }
  // Terms that changed since the last call, those with a smaller request first.
  std::vector<Terms> TakeTerms();
  // The vGPU whose speed alone is being measured.
  std::optional<VgpuId> audited() const { return auditor_.audited(); }
  // Whether the vGPU must stand still for that now. A vGPU with a latency goal, or of a higher priority, never has to.
  bool Stands(VgpuId id) const;
  // Verdicts that changed since the last call.
  std::vector<Verdict> TakeVerdicts();

  // Empty for a vGPU that is not known or has no goal.
  std::optional<GoalReport> ReportOf(VgpuId id, Nanos now);

 private:
  GoalState* Find(VgpuId id);
  bool OthersBusy(const GoalState& vgpu) const;
  void CountShared(Nanos now);
  void Worked(GoalState& vgpu, Nanos now);
  void EndBurst(GoalState& vgpu, Nanos now);
  void Cut(GoalState& vgpu, Nanos end, std::uint64_t submissions, Nanos now);
  void Audit(const GoalState& vgpu, Nanos now);
  void Schedule(Nanos now);
  void Rush(Nanos now);
  void Tick(Nanos now);
  void Judge(GoalState& vgpu, Nanos now);
  void UpdateTerms(Nanos now);
  void UpdateDeadline(Nanos now);

  const GoalsConfig config_;
  std::map<VgpuId, std::unique_ptr<GoalState>> vgpus_;
  Auditor auditor_;
  std::vector<Terms> terms_;
  std::vector<Verdict> verdicts_;
  std::size_t busy_ = 0;  // vGPUs with work
  Nanos shared_ = 0;      // the time in which several vGPUs could run, until shared_at_
  Nanos shared_at_ = 0;
  Nanos tick_at_ = kNever;  // speeds and audits are looked at
  Nanos judge_at_ = 0;      // and verdicts too
  Nanos deadline_ = kNever;
};

}  // namespace tessera::sched
