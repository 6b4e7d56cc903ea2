#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "plan/model/costs.h"
#include "plan/model/random.h"
#include "plan/model/violations.h"
#include "plan/time/goal_terms.h"
#include "plan/time/late_timer.h"
#include "plan/time/sliced_hardware.h"
#include "plan/time/time_model.h"
#include "sched/steering/steering.h"

namespace tessera::plan {

// Time divided by Steering: the GPU's own scheduler gives each vGPU its slice, and driver calls freeze those that must
// not run. Calls are made one after the other and take time; programs tell the daemon by messages that take time too.
// Goals set the terms.
class SteeredTime : public TimeModel {
 public:
  SteeredTime(const GpuSpec& spec, std::uint64_t seed, Violations& violations);

  Result<void> Add(Part& part, Nanos now) override;
  Result<void> Update(Part& part, const sched::Shares& shares, Nanos now) override;
  void Remove(Part& part, Nanos now) override;
  void Submits(Part& part, Nanos now) override;
  void Done(Part& part, Nanos now) override;
  void Told(Part& part, Nanos latency, Nanos now) override;
  void Hold(Part& part, Nanos now) override;
  bool Still(const Part& part) const override;
  bool Active(const Part& part) const override { return clients_.at(part.vgpu).active; }
  Nanos NextEvent() const override;
  void Step(Nanos now) override;
  void Settle(Nanos now) override;
  std::optional<sched::Usage> Billed(const Part& part, Nanos now) const override;
  bool Switching(Nanos now) const override { return hardware_.Switching(now); }
  bool Audits() const override { return goals_.Audits(); }
  std::optional<sched::GoalReport> GoalOf(const Part& part, Nanos now) override { return goals_.ReportOf(part, now); }
  void Count(GpuFigures& figures) const override;
  void Reset() override;

 private:
  using Kind = sched::Order::Kind;

  // State of a program: its own view, and the daemon's view and orders.
  struct Client {
    Part* part = nullptr;
    Nanos grace = 0;         // without work for so long, it says that it is idle
    Nanos idle_since = 0;    // its work ended
    Nanos idle_at = kNever;  // it will say so
    bool said_active = false;
    Nanos told_at = 0;  // its last message arrives

    bool active = false;   // by its messages
    bool counts = false;   // as Steering was told: active, and its memory is there
    bool stopped = false;  // by Steering
    bool freeze_ordered = false;
    bool hold_ordered = false;  // frozen because its memory is to go
    bool policy_frozen = false;
    bool memory_frozen = false;
    Nanos grace_order = 0;
  };
  // Something that comes to pass later: a message, or what a driver call does.
  struct Effect {
    enum class Kind { kActive, kIdle, kLatency, kFreeze, kThaw, kSlice, kHold, kLetGo } kind;
    sched::VgpuId vgpu;
    Nanos value = 0;  // kIdle: since when; kLatency; kSlice
  };

  void Tell(Client& client, Effect::Kind kind, Nanos value, Nanos now);
  void Apply(const Effect& effect, Nanos now);
  void Report(Client& client, Nanos now, Nanos idle_since);
  void PassGate(Client& client);
  void SetFrozen(Client& client);
  void Obey(Nanos now);
  Nanos StopOrGo(const std::vector<sched::Order>& orders, sched::Order::Kind kind, Nanos now, Nanos done);
  // The end of a driver call that takes so long and begins when the ones before it are done.
  Nanos Call(Nanos takes, Nanos now, Nanos after);

  const SteeringCosts costs_;
  const sched::SteeringConfig config_;
  sched::Steering steering_;
  GoalTerms goals_;
  Random random_;
  Violations& violations_;
  LateTimer timer_;
  SlicedHardware hardware_;
  std::map<sched::VgpuId, Client> clients_;
  std::map<sched::VgpuId, ChannelGroup> groups_;
  std::multimap<Nanos, Effect> effects_;
  Nanos driver_free_ = 0;
  std::deque<Nanos> calls_;  // of the last second
  std::int64_t call_count_ = 0;
  std::int64_t most_calls_ = 0;
  std::int64_t orders_ = 0;
  std::int64_t graces_ = 0;
};

}  // namespace tessera::plan
