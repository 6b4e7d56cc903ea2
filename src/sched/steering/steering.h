// Scheduler of one GPU whose channels can be steered: the GPU's own scheduler shares its time by slices, and a vGPU
// that must not run is frozen. The counterpart of token_scheduler.h, which needs nothing of the GPU.
//
// A pure function of events, as the token scheduler is. docs/scheduler.md tells the rules.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/shares/min_share.h"
#include "sched/shares/shares.h"
#include "sched/steering/giving_way.h"
#include "sched/steering/limit_keeper.h"
#include "sched/steering/order.h"
#include "sched/steering/order_list.h"
#include "sched/steering/slice_keeper.h"
#include "sched/steering/steered_vgpu.h"
#include "sched/steering/steering_config.h"
#include "sched/tokens/account.h"

namespace tessera::sched {

class Steering {
 public:
  explicit Steering(SteeringConfig config = {});

  // Admission and changes, as TokenScheduler's. A vGPU begins idle, and going; if that is against the present rules, a
  // kStop comes at once.
  Result<void> Add(VgpuId id, Shares shares, Nanos now);
  Result<void> Update(VgpuId id, Shares shares, Nanos now);
  void Remove(VgpuId id, Nanos now);

  // Events. `now` never goes backwards; events that make no sense are ignored. A vGPU that somebody else has frozen is
  // idle until it is thawed.
  void Active(VgpuId id, Nanos now);                  // it has work, or wants to submit some
  void Idle(VgpuId id, Nanos now, Nanos idle_since);  // it has none since then
  // Whether it has processes that no gate keeps from submitting: to stop it, it is then frozen even while it is idle,
  // and no message tells when it becomes active.
  void Ungated(VgpuId id, bool ungated);
  // These vGPUs stand still from now on, and no others for this reason. Lower classes run meanwhile as if they had no
  // work. Their thaw waits for no budget, so this must be rare: audits are, and gangs stand for 20 ms at
  // least.
  void SetAside(const std::set<VgpuId>& ids, Nanos now);
  void Advance(Nanos now);

  // When Advance must be called at the latest; kNever if nothing is pending.
  Nanos NextDeadline() const { return deadline_; }
  // Since the last call, in order.
  std::vector<Order> TakeOrders() { return orders_.Take(now_); }

  // False or 0 for an unknown id.
  bool AtLimit(VgpuId id) const;   // it has had what its limit permits
  Nanos SliceOf(VgpuId id) const;  // the last order; 0 before the first
  double PartOf(VgpuId id) const;  // of the GPU's time that it gets while it runs, by its slice; in [0, 1]
  // An active vGPU would be stopped at once if an idle one of a higher class became active: news of that are urgent.
  bool Urgent() const;
  // Busy is what slices and stops should have given it; what it got is not known here.
  Usage UsageOf(VgpuId id, Nanos now) const;

 private:
  SteeredVgpu* Find(VgpuId id);
  const SteeredVgpu* Find(VgpuId id) const;
  void Take(Nanos now) { now_ = now > now_ ? now : now_; }

  // One pass over everything that is due; each step sees what those before it decided.
  void Schedule();
  bool MustStop(const SteeredVgpu& vgpu) const;
  void StopAndGo();
  static void ChooseFirst(std::vector<SteeredVgpu*>& goes);
  void Stop(SteeredVgpu& vgpu);
  void Go(SteeredVgpu& vgpu);
  void UpdateRunning();
  void UpdateMinShare();
  void UpdateGraces();
  void UpdateDeadline();
  void EndRun(SteeredVgpu& vgpu, Nanos end);
  void EndWait(SteeredVgpu& vgpu);

  const SteeringConfig config_;
  SteeredVgpus vgpus_;
  SliceKeeper::Running running_;
  OrderList orders_;
  LimitKeeper limits_;
  GivingWay way_;
  SliceKeeper slices_;
  MinShare min_share_;
  Nanos now_ = 0;
  Nanos deadline_ = kNever;
  Nanos go_due_ = kNever;  // when the budget allows the thaws that wait for it
};

}  // namespace tessera::sched
