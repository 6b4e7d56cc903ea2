// Decides whose memory lies on one GPU and who may run meanwhile: admission, turns, victims, exchange, the pool.
//
// It knows neither clock nor threads nor I/O: the same calls give the same plans. One object serves one GPU. The caller
// takes a state (a snapshot), asks for a plan, carries its actions out, and does so again until a plan has no actions.
// docs/memory.md tells the rules.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sched/residency/planner/residency_pass.h"
#include "sched/residency/planner/residency_records.h"
#include "sched/residency/pool_policy.h"
#include "sched/residency/promises.h"
#include "sched/residency/residency_plan.h"
#include "sched/residency/residency_state.h"
#include "sched/turns/residency.h"

namespace tessera::sched {

class ResidencyPlanner {
 public:
  explicit ResidencyPlanner(ResidencyConfig config = {}) : policy_(config) {}
  // Other lengths of turns, from the next one on.
  void Configure(const ResidencyConfig& config) { policy_.Configure(config); }

  // Says what to do now. `now` does not go back. The reference holds until the next call.
  const ResidencyPlan& Plan(const ResidencyState& state, Nanos now);

  // A process asks for room. Where it has to wait, the caller notes the wish in the state and plans. A grant is not in
  // `state`: the caller adds it.
  RoomAnswer Ask(const ResidencyState& state, const RoomWish& wish, Nanos now) const;

  // As of the last plan.
  bool TakesTurns() const { return plan_.pressed && policy_.CurrentMode() == Residency::Mode::kTurns; }
  TurnWishes Wishes() const;  // for the order over several GPUs; empty where nothing takes turns
  Nanos TurnLength() const { return plan_.pressed ? policy_.TurnLength() : 0; }  // 0: none is under way
  const PoolGoal& Pool() const { return pool_.Goal(); }
  // For people; `state` is as it is now.
  std::string Why(const ResidencyState& state) const;

 private:
  struct PlannedVGpu {
    VGpuResidence* now;
    VGpuRecord* record;
    std::size_t first;  // of its processes in processes_
    VGpuGoal goal;
  };

  void KnowVGpus(const ResidencyState& state, Nanos now);
  bool MustStopOnArrival(const ProcessResidence& process) const;
  void Copy(const ResidencyState& state);
  void PlanPool(PoolResidence pool, bool mover_ready);
  void SetGoals(Nanos now);
  void Serve(ResidencyPass& pass, bool runs);
  void SetNextLook(const ResidencyPass& pass, Nanos now);

  Residency policy_;
  PoolPolicy pool_;
  std::uint64_t plans_ = 0;
  std::unordered_map<VgpuId, VGpuRecord> vgpu_records_;
  std::unordered_map<ProcessId, ProcessRecord> process_records_;

  // Of the plan in the making, and kept for their memory.
  ResidencyState state_;  // as it would be after the plan's actions
  std::vector<PlannedVGpu> vgpus_;
  std::vector<PlannedProcess> processes_;
  std::vector<PlannedProcess> arrived_;  // those that must not run as they came
  std::vector<VGpuClaims> claims_;
  std::vector<ResidencyFacts> facts_;
  ResidencyPlan plan_;
};

}  // namespace tessera::sched
