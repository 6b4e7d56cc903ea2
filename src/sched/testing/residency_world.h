// A GPU in virtual time whose memory a ResidencyPlanner looks after, for tests: programs that allocate and work, a
// mover that copies one chunk at a time in each direction, and laws that every plan has to keep. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/residency/planner/residency_planner.h"

namespace tessera::sched {

// How a program of the world behaves.
struct WorldProgram {
  Nanos drains_for = kMillisecond;  // after it was stopped, until nothing of it can execute; kNever: always something
  bool works = false;
  bool squeezes = false;  // what is ordered out of it are chunks with holes
  // Of each whole chunk of it: bytes with nothing in them. Its chunks come back whole, or without.
  std::uint64_t hole = 0;
  std::uint64_t may_be_holes = 0;  // of what is on its way in
  std::size_t sparse = 0;          // chunks on the GPU that have none
  // Counted by the world.
  std::uint64_t asks_for = 0;  // bytes of an allocation that waits for room
  bool pins = false;           // that
  Nanos stopped_at = 0;
  Nanos moves_since = kNever;  // it is being moved
  Nanos ran = 0;               // with work
  Nanos waits_since = 0;       // it has work or asks for room, and does neither run nor get it
  Nanos longest_wait = 0;
  std::size_t came_whole = 0, came_sparse = 0;  // chunks
};

class ResidencyWorld {
 public:
  explicit ResidencyWorld(std::uint64_t capacity, const ResidencyConfig& config = {});

  ResidencyState state;
  std::map<ProcessId, WorldProgram> programs;
  std::uint64_t bytes_per_second = 50'000'000'000;
  Nanos now = kSecond;

  VGpuResidence& AddVGpu(VgpuId id, std::uint32_t priority = 8);
  // With so much allocated, all of it on the GPU.
  ProcessResidence& AddProcess(VgpuId vgpu, ProcessId id, std::uint64_t bytes = 0);
  void RemoveProcess(ProcessId id);
  VGpuResidence& VGpu(VgpuId id);
  ProcessResidence& Process(ProcessId id);
  void Work(ProcessId id, bool works);

  // A program allocates as the shim does: out of its credit, or it asks. It repeats the question while it waits.
  // `pins`: memory that cannot be moved.
  RoomAnswer Allocate(ProcessId id, std::uint64_t bytes, bool pins = false);
  void Free(ProcessId id, std::uint64_t bytes);

  // Plans and carries out until a plan has no actions; fails the laws if that does not come to an end.
  void Look();
  // The first plan, checked and not carried out.
  ResidencyPlan PlanOnly();
  // Lets time pass: the mover moves, programs come to a stand, take credit and repeat questions.
  void Run(Nanos duration);
  // Until the mover has nothing to do and no plan has actions; 100 s at most.
  void Finish();

  const ResidencyPlanner& planner() const { return planner_; }
  const std::vector<ResidencyAction>& history() const { return history_; }   // of all plans
  std::size_t Count(ResidencyActionKind kind, ProcessId process = 0) const;  // in it; 0: of any process
  const std::vector<std::string>& violations() const { return violations_; }
  Nanos LongestTurn() const { return longest_turn_; }

 private:
  struct Move {
    ProcessId process = 0;  // 0: none
    Nanos done = 0;
  };
  const ResidencyPlan& Plan();
  void CarryOut(const ResidencyPlan& plan);
  void StepMover();
  void StartMove(Move& move, Moving direction);
  void EndMove(Move& move, Moving direction);
  void MoveOut(ProcessResidence& process);
  void MoveIn(ProcessResidence& process);
  void StepPrograms();
  Nanos NextEvent() const;
  void Elapse(Nanos until);

  ResidencyPlanner planner_;
  ResidencyPlanner twin_;  // hears the same, and has to say the same
  Move out_, in_;
  Nanos look_at_ = 0;
  bool pressed_ = false;
  std::vector<ResidencyAction> history_;
  std::vector<std::string> violations_;
  Nanos longest_turn_ = 0;
};

// Laws that hold for every plan of any state, whatever happened before; a sentence for each that is broken.
std::vector<std::string> BrokenLaws(const ResidencyState& state, const ResidencyPlan& plan, Nanos now);
// Laws of an answer to a process that asks for room.
std::vector<std::string> BrokenLaws(const ResidencyState& state, const RoomWish& wish, const RoomAnswer& answer,
                                    bool pressed, Nanos now);

}  // namespace tessera::sched
