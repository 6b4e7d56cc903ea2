#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "plan/memory/move_link.h"
#include "plan/model/costs.h"
#include "plan/model/part.h"
#include "plan/model/violations.h"
#include "plan/model/workload.h"
#include "plan/time/time_model.h"
#include "sched/residency/planner/residency_planner.h"

namespace tessera::plan {

// The memory of one simulated GPU: does what the daemon does with the plans of sched::ResidencyPlanner. A program is
// held while it is stopped because of its memory, and while it waits for room. The one place of this library that knows
// the planner.
class MemoryModel {
 public:
  MemoryModel(const GpuSpec& spec, Violations& violations);

  void Add(Part& part, const MemoryTerms& terms);
  void Update(const Part& part);
  // Memory of a program that leaves the GPU.
  struct Luggage {
    std::uint64_t allocated = 0;  // bytes
    std::uint64_t resident = 0;   // of these on the GPU; they go to host memory,
    Nanos out_for = 0;            // which takes so long
    std::uint64_t allocates = 0;  // bytes that it has once it has the room that it waits for
  };
  Luggage Remove(const Part& part);
  // A program comes from another GPU, and is there at `at`, held until then. Its memory is in host memory.
  void Arrive(Part& part, const MemoryTerms& terms, const Luggage& luggage, Nanos at, Nanos now);
  std::uint64_t AllocatedBy(const Part& part) const;

  // The program has so much allocated from now on; what it frees
  // comes free a little later. If there is no room it waits for it,
  // or is refused and goes on with what it has.
  void Allocate(Part& part, std::uint64_t bytes, TimeModel& time, Nanos now);

  // When Step has to be called at the latest; kNever.
  Nanos NextEvent() const;
  // Ends the moves that are due.
  void Step(Nanos now);
  // All events of this moment are told: plans, if something has changed, and carries the plans out.
  void Settle(TimeModel& time, Nanos now);

  // For the order over several GPUs, and what that says.
  sched::TurnWishes Wishes() const { return planner_.Wishes(); }
  void SetTurn(sched::VgpuId vgpu, sched::GangTurn turn);

  // Adds what it counted since Reset.
  void Count(GpuFigures& figures) const;
  void Reset() { longest_turn_ = longest_move_ = 0; }

 private:
  struct Member {
    Part* part = nullptr;
    std::size_t vgpu = 0;         // of state_
    std::uint64_t allocates = 0;  // what it has allocated once it has the room that it waits for
    bool runs = true;             // by the last plan
    Nanos gives_at = kNever;      // it gives up the room of what it has freed
    Nanos arrives_at = 0;         // before, it is on its way from another GPU
    Nanos begins = kNever;        // it is to run, and cannot yet: since then
  };

  sched::ProcessResidence& ProcessOf(const Member& member) { return state_.vgpus[member.vgpu].processes.front(); }
  Member& MemberOf(sched::ProcessId process);
  void Free(Member& member, std::uint64_t bytes, Nanos now);
  void GiveBack(Member& member);
  void Ask(Member& member, Nanos now);
  bool Observe(const TimeModel& time, Nanos now);
  void Plan(TimeModel& time, Nanos now);
  void CarryOut(const sched::ResidencyAction& action, Nanos now);
  void HoldOrLetGo(TimeModel& time, Nanos now);
  void EndMove(const Move& move, bool in, Nanos now);

  const MoveCosts costs_;
  Violations& violations_;
  sched::ResidencyPlanner planner_;
  sched::ResidencyState state_;  // each vGPU has one process
  std::map<sched::VgpuId, Member> members_;
  sched::ProcessId last_process_ = 0;
  MoveLink out_;
  MoveLink in_;
  bool changed_ = false;  // since the last plan
  Nanos look_at_ = kNever;
  Nanos gives_at_ = kNever;  // the first of the members'
  Nanos arrives_at_ = kNever;
  Nanos longest_turn_ = 0;
  Nanos longest_move_ = 0;
};

}  // namespace tessera::plan
