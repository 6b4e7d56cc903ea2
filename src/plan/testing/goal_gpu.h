#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plan/model/costs.h"
#include "plan/model/random.h"
#include "plan/time/sliced_hardware.h"
#include "sched/goals/goals.h"
#include "sched/steering/steering.h"

namespace tessera::plan {

// Work of a simulated program with or without a goal.
struct GoalLoad {
  Nanos request = kNever;                 // GPU time of one; kNever: the program always has work
  Nanos gap = 0;                          // mean time between two requests
  bool poisson = false;                   // they arrive at random and queue; else each comes `gap` after the last ended
  Nanos submission = 100 * kMicrosecond;  // GPU time of one
  bool tells = false;                     // the program tells how long each request took
};

// Simulated GPU whose time is divided by Steering under the terms of Goals, in virtual time. The hardware is
// SlicedHardware. Driver calls come one after the other and take their time; messages take up to 50 us.
class GoalGpu {
 public:
  using Id = sched::VgpuId;

  explicit GoalGpu(std::uint64_t seed = 1) : random_(seed) {}

  Result<void> Add(Id id, const sched::Shares& shares, const std::optional<sched::Goal>& goal, const GoalLoad& load);
  void Remove(Id id);
  void Run(Nanos duration);
  // Figures are of the time since this.
  void StartMeasuring();

  Nanos now() const { return now_; }
  sched::Goals& goals() { return goals_; }
  const std::vector<Nanos>& LatenciesOf(Id id) const { return tenants_.at(id).latencies; }  // of requests
  double ViolationsPct(Id id, Nanos target) const;
  Nanos Quantile(Id id, double part) const;
  // Part of the measured time in which its work ran.
  double ExecutedPart(Id id) const;
  double AuditedPart() const { return Part(audited_); }
  double CallsPerSecond() const;
  // The last verdict, and when it came; kNever: none.
  const sched::Verdict& VerdictOf(Id id) const { return tenants_.at(id).verdict; }
  Nanos VerdictAt(Id id) const { return tenants_.at(id).verdict_at; }

 private:
  struct Tenant {
    GoalLoad load;
    sched::Shares shares;  // with the terms
    Nanos grace = kMillisecond;
    plan::Part part;
    std::deque<std::pair<Nanos, Nanos>> queue;  // requests: arrival, and work left
    Nanos arrives_at = kNever;
    Nanos done = 0;     // work of the burst
    bool told = false;  // the daemon was told, or a message is under way
    Nanos tells_at = kNever;
    bool tells_active = false;
    bool active = false;  // as the daemon knows
    Nanos idle_since = kNever;
    bool frozen = false;  // by a call, as ordered
    std::vector<Nanos> latencies;
    Nanos executed = 0;
    sched::Verdict verdict;
    Nanos verdict_at = kNever;
  };
  struct Effect {
    Id vgpu;
    enum class Kind { kFreeze, kThaw, kSlice } kind;
    Nanos slice = 0;
  };

  double Part(Nanos time) const;
  Nanos NextEvent() const;
  void Elapse(Nanos until);
  void Step();
  void StepTenant(Id id, Tenant& tenant);
  void Arrive(Tenant& tenant);
  void Obey();
  void StopOrGo(const std::vector<sched::Order>& orders, bool stop);
  void Call(Nanos takes);

  const SteeringCosts costs_;
  Random random_;
  const sched::SteeringConfig config_;
  sched::Goals goals_;
  sched::Steering steering_{config_};
  std::set<Id> aside_;
  SlicedHardware hardware_{costs_};
  std::map<Id, Tenant> tenants_;
  std::map<Id, ChannelGroup> groups_;
  std::multimap<Nanos, Effect> effects_;
  Nanos driver_free_ = 0;
  Nanos now_ = 0;
  Nanos measured_since_ = 0;
  Nanos audited_ = 0;
  std::int64_t calls_ = 0;
};

}  // namespace tessera::plan
