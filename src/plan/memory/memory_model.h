#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "plan/model/costs.h"
#include "plan/model/part.h"
#include "plan/model/violations.h"
#include "plan/time/time_model.h"
#include "sched/residency/residency.h"

namespace tessera::plan {

// The memory of one simulated GPU: the residency policy decides whose is on it, a mover copies it to host memory and
// back, one chunk at a time in each direction. A program is held while its memory is not where it is to be. The one
// place of this library that knows how the policy is asked.
class MemoryModel {
 public:
  MemoryModel(const GpuSpec& spec, Violations& violations);

  void Add(Part& part, Nanos now);
  void Update(const Part& part, Nanos now);
  void Remove(const Part& part, Nanos now);

  // The program has so much allocated from now on. What it frees is gone at once; what is new costs no move, but room.
  void Allocate(const Part& part, std::uint64_t bytes, Nanos now);

  // When Step has to be called at the latest; kNever.
  Nanos NextEvent() const;
  // Ends the moves that are due, and lets the policy do what is due.
  void Step(Nanos now);
  // All events of this moment are told: asks the policy, holds programs and lets them go, and begins moves.
  void Settle(TimeModel& time, Nanos now);

  std::uint64_t ResidentOf(const Part& part) const { return members_.at(part.vgpu).resident; }
  const sched::Residency& policy() const { return policy_; }
  // Adds what it counted since Reset.
  void Count(GpuFigures& figures) const;
  void Reset() { longest_turn_ = longest_move_ = 0; }

 private:
  struct Member {
    Part* part = nullptr;
    std::uint64_t allocated = 0;
    std::uint64_t resident = 0;
    std::uint64_t out = 0;  // in host memory; the rest of `allocated` is new and waits for room
    bool active = false;
    sched::ResidencyDecision decision;
    Nanos owed_since = kNever;  // the policy is to hear when its decision is true

    std::uint64_t fresh() const { return allocated - resident - out; }
  };
  struct Move {
    sched::VgpuId vgpu;
    std::uint64_t bytes;
    Nanos done;
  };

  void Inform(const TimeModel& time, Nanos now);
  void Obey(Nanos now);
  void MakeNew(Nanos now);
  void TellReady(Nanos now);
  bool Holds(const Member& member) const;
  bool HoldOrLetGo(TimeModel& time, Nanos now);  // whether any
  std::optional<Move> NextOut(const TimeModel& time, Nanos now) const;
  std::optional<Move> NextIn(const TimeModel& time, Nanos now) const;
  void EndMove(std::optional<Move>& move, bool in, Nanos now);
  bool Moves(sched::VgpuId vgpu) const { return (in_ && in_->vgpu == vgpu) || (out_ && out_->vgpu == vgpu); }
  std::uint64_t Free() const;

  const MoveCosts costs_;
  sched::Residency policy_;
  Violations& violations_;
  std::uint64_t capacity_;
  std::map<sched::VgpuId, Member> members_;
  std::optional<Move> in_;
  std::optional<Move> out_;
  Nanos longest_turn_ = 0;
  Nanos longest_move_ = 0;
};

}  // namespace tessera::plan
