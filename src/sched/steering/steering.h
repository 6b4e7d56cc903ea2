// Who executes on one GPU whose channels can be steered: the GPU's own scheduler shares its time by slices, and whoever
// must not run is frozen. The counterpart of token_scheduler.h, which needs nothing of the GPU.
//
// A pure function of events, as the token scheduler is. docs/scheduler.md tells the rules.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/shares/min_share.h"
#include "sched/shares/shares.h"
#include "sched/steering/call_budget.h"
#include "sched/steering/grace.h"
#include "sched/tokens/account.h"
#include "sched/tokens/token_scheduler.h"

namespace tessera::sched {

// What the GPU server must do now. At most one of each kind for a vGPU is outstanding in a list of orders, and never
// both a kStop and a kGo.
struct Order {
  enum class Kind {
    kStop,   // freeze the vGPU's channels, and hold back the submissions of its processes that have nothing queued
    kGo,     // thaw them, and let submissions pass
    kSlice,  // give its channels together this slice
    kGrace,  // a process of it is idle when it had no work for this long
  };
  Kind kind;
  VgpuId vgpu;
  Nanos time = 0;  // kSlice: of the whole vGPU, kGrace
};

struct SteeringConfig {
  Config shares;                         // window and min_slice; drain_timeout has no meaning here
  Nanos mean_slice = 20 * kMillisecond;  // of those that compete; a switch costs 0.2 ms (docs/hardware-log.md)
  Nanos least_slice = kMillisecond;
  Nanos most_slice = kSecond;
  Nanos slice_interval = 100 * kMillisecond;  // a vGPU's slice changes no more often, but for an operator's Update
  Nanos least_grace = kMillisecond;
  Nanos most_grace = 50 * kMillisecond;
  Nanos cycle_cost = kMillisecond;  // of a thaw and the freeze that ends it: a freeze takes half, a thaw a quarter
  double min_share_pct = 0;         // priority.min_share: of the time, for classes that higher ones keep from running
  bool fixed_slices = false;        // slice = 524288 us >> priority for everybody, and nobody is stopped but by a limit
  double calls_per_second = 100;    // to the driver, at most; what cannot wait may exceed it for a moment
  std::uint32_t vgpus_per_call = 8;  // that one call freezes or thaws, of those in one list: 64 channels, 8 a context
};

class Steering {
 public:
  explicit Steering(SteeringConfig config = {});

  // Admission and changes, as TokenScheduler's. A vGPU begins idle, and going; if that is against the present rules, a
  // kStop comes at once.
  Result<void> Add(VgpuId id, Shares shares, Nanos now);
  Result<void> Update(VgpuId id, Shares shares, Nanos now);
  void Remove(VgpuId id, Nanos now);

  // Events. `now` never goes backwards; what makes no sense is ignored.
  void Active(VgpuId id, Nanos now);                  // it has work, or wants to submit some
  void Idle(VgpuId id, Nanos now, Nanos idle_since);  // it has none since then
  void Hold(VgpuId id, bool held, Nanos now);         // somebody else froze it: it takes no part until it is let go
  // Whether it has processes that no gate keeps from submitting: then it is frozen to stop it, active or not, and
  // nobody hears when it becomes active.
  void Ungated(VgpuId id, bool ungated);
  void Advance(Nanos now);

  // When Advance must be called at the latest; kNever if nothing is pending.
  Nanos NextDeadline() const { return deadline_; }
  // Since the last call, in order.
  std::vector<Order> TakeOrders();

  // False or 0 for an unknown id.
  bool Stopped(VgpuId id) const;  // by an order of this
  bool AtLimit(VgpuId id) const;  // it has had what its limit permits
  bool Running(VgpuId id) const;  // active and neither stopped nor held
  // Somebody active would be stopped at once if an idle vGPU of a higher class became active: its news are urgent.
  bool Urgent() const;
  Nanos SliceOf(VgpuId id) const;  // the last order; 0 before the first
  // Busy is what slices and stops should have given it; what it got is not known here.
  Usage UsageOf(VgpuId id, Nanos now) const;

 private:
  struct Tenant {
    Account account;
    Grace grace;

    // What events said.
    bool active = false;
    bool held = false;
    bool ungated = false;
    Nanos active_since = 0;
    Nanos idle_since = kNever;  // kNever: no gap to learn from
    Nanos seen_active = kNever;

    // What is ordered.
    bool stopped = false;
    bool frozen = false;  // stopped with work on the GPU: to let it go takes a driver call
    Nanos stopped_at = 0;
    Nanos slice = 0;
    Nanos sliced_at = 0;
    Nanos wrong_since = kNever;  // the slice, when it was looked at
    Nanos grace_ordered = 0;

    // The limit.
    Nanos ran_until = kNever / -2;  // billed, the last time
    bool exhausted = false;         // it holds the vGPU back
    bool admitted = false;          // it did until now, and the driver call that ends it is paid
    Nanos back_at = kNever;         // exhausted: until then
    Nanos check_at = kNever;        // runs: its end cannot come before

    double part = 1;  // of the GPU's time while it runs

    const Shares& shares() const { return account.shares(); }
    bool limited() const { return shares().limit_pct < 100; }
    bool runs() const { return active && !held && !stopped; }
    bool claims() const { return active && !held && !exhausted; }
  };

  // Calls that must be left: for a thaw also its freeze, for a slice some for those.
  static constexpr double kCallsForGo = 2;
  static constexpr double kCallsForSlice = 4;

  Tenant* Find(VgpuId id);
  const Tenant* Find(VgpuId id) const;
  void Take(Nanos now) { now_ = now > now_ ? now : now_; }
  Nanos FreezeTime() const { return config_.cycle_cost / 2; }
  Nanos ThawTime() const { return config_.cycle_cost / 4; }

  // One pass over everything that is due; each step sees what those before it decided.
  void Schedule();
  void UpdateLimits();
  void Exhaust(Tenant& tenant);
  Nanos Spare(const Tenant& tenant) const;
  void Readmit(Tenant& tenant);
  Nanos BackAt(const Tenant& tenant) const;
  Nanos CheckAt(const Tenant& tenant) const;
  std::uint32_t TopClass() const;
  bool MustStop(const Tenant& tenant) const;
  void StopAndGo();
  void Stop(VgpuId id, Tenant& tenant);
  void Go(VgpuId id, Tenant& tenant);
  void UpdateRunning();
  void UpdateSlices();
  void OrderSlice(VgpuId id, Tenant& tenant, Nanos slice);
  void FixSlice(VgpuId id, Tenant& tenant);
  void UpdateParts();
  void UpdateMinShare();
  void UpdateGraces();
  void UpdateDeadline();

  void EndRun(Tenant& tenant, Nanos end);
  void EndWait(Tenant& tenant);
  bool Push(const Order& order);
  double CallsFor(const std::vector<Order>& orders) const;
  bool MayCallForGo(VgpuId id);

  const SteeringConfig config_;
  std::map<VgpuId, Tenant> tenants_;
  std::vector<std::pair<VgpuId, Tenant*>> running_;  // by id
  CallBudget budget_;
  MinShare min_share_;
  std::uint32_t top_ = 0;  // the class that runs; lower ones have greater numbers
  Nanos now_ = 0;
  Nanos deadline_ = kNever;
  Nanos slices_due_ = kNever;    // when those that are wrong change
  Nanos go_due_ = kNever;        // when the budget allows what waits for it
  bool slices_at_once_ = false;  // an operator's change
  std::vector<Order> orders_;
};

}  // namespace tessera::sched
