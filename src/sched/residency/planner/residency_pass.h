// One plan in the making: works down a copy of the state, on which each action takes effect as soon as it is decided.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/residency/planner/residency_records.h"
#include "sched/residency/residency_plan.h"
#include "sched/residency/residency_state.h"
#include "sched/turns/residency.h"

namespace tessera::sched {

// A process, and what is remembered of it.
struct PlannedProcess {
  ProcessResidence* now;
  ProcessRecord* record;
};

// Decides for one vGPU after the other which actions bring it to its goal. Lives for one plan; refers to all that it is
// given.
class ResidencyPass {
 public:
  // `state` is changed as the actions say, but for revoked credit: that counts as used until a later state shows that
  // it is gone, because its program may take it meanwhile.
  ResidencyPass(ResidencyState& state, Residency& policy, ResidencyPlan& plan, Nanos now);

  // Before everything else: forgets wishes that are not repeated, and revokes credit that nobody waited for.
  void CollectCredit(const PlannedProcess& process);
  // Stops a process that came here with addresses that are not valid, before the mover could settle it.
  void StopOnArrival(const PlannedProcess& process) { Note(process, ResidencyActionKind::kStop, 0); }

  // Brings the vGPU closer to `goal`. Those that must not run come first: they make room for the others.
  void Serve(VGpuResidence& vgpu, VGpuRecord& record, std::span<const PlannedProcess> processes, const VGpuGoal& goal);

  // The policy has heard that a goal is reached: what follows from that is for the next plan.
  bool ToldPolicy() const { return told_policy_; }

 private:
  // The vGPU that is served.
  struct Served {
    VGpuResidence* vgpu = nullptr;
    VGpuRecord* record = nullptr;
    std::span<const PlannedProcess> processes;
    VGpuGoal goal;
    std::uint64_t room = 0, resident = 0, wanted = 0;  // sums over its processes; the last two can be moved
    std::uint64_t squeezed = 0;                        // is to come back first
    std::uint64_t out = 0, whole_out = 0;              // to come in: with as little room as may be, and whole
  };

  void NoteGoal();
  std::uint64_t Needed() const;
  void LetAllRun();
  void BeginExchange(const PlannedProcess& process);
  std::uint64_t Squeeze(std::uint64_t excess);
  void Evict(std::uint64_t excess);
  void GrantPinned();
  void GrantWishes();
  void Grant(const PlannedProcess& process);
  void Load();
  void LetRun();
  bool GoesOn(const PlannedProcess& process, bool overdue, bool& all);
  void SendAway(const PlannedProcess& process);
  void LetRest(const PlannedProcess& process);
  void FreePeers(const PlannedProcess& process, bool could_be_moved);
  bool Stop(const PlannedProcess& process);
  void Run(const PlannedProcess& process);
  void Do(const PlannedProcess& process, ResidencyActionKind kind, std::uint64_t bytes = 0, std::uint64_t holes = 0);
  void Note(const PlannedProcess& process, ResidencyActionKind kind, std::uint64_t bytes, std::uint64_t holes = 0);
  std::uint64_t Free() const;
  bool Overdue() const;

  ResidencyState& state_;
  Residency& policy_;
  ResidencyPlan& plan_;
  const Nanos now_;
  std::uint64_t room_;  // of all vGPUs
  bool told_policy_ = false;
  Served served_;
};

}  // namespace tessera::sched
