// Whose memory is resident on one GPU, and who may run: the residency policy.
//
// A pure function of events, as TokenScheduler is: no clock, no thread, no I/O; the same events give the same
// decisions. One instance serves one GPU. Not thread-safe. It knows bytes that can be moved only: the caller takes off
// the capacity what cannot be moved. docs/memory.md explains the rules.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/turns/residency_turns.h"

namespace tessera::sched {

// All that an observer of the vGPUs can say of one of them at one moment.
struct ResidencyFacts {
  VgpuId vgpu = 0;
  std::uint64_t demand = 0;    // bytes that it wants to have resident when it runs
  std::uint64_t holes = 0;     // bytes that it takes beside them when it runs, before those have any that do not work
  std::uint64_t resident = 0;  // and has
  bool active = false;         // it has work, which may wait while it is stopped, or wants memory that it does not have
  GangTurn gang = GangTurn::kOpen;  // in turns: what the order over several GPUs says
};

// The residency policy of one GPU.
class Residency {
 public:
  enum class Mode {
    kTogether,  // what the active ones use fits: all run
    kTurns,     // it does not: they take turns
  };

  // Nonsense in `config` is mended: what is out of range becomes the nearest that is not.
  explicit Residency(ResidencyConfig config = {}) { Configure(config); }
  // Other lengths of turns, from the next one on.
  void Configure(ResidencyConfig config);

  // `priority` and `weight` as in Shares: lower priority numbers go first and never wait for higher ones; a turn's
  // length is in proportion to the weight. A vGPU begins idle, running, with nothing; one whose priority changes goes
  // to the back of its new class. Ignored: an id that exists (Add) or does not (all others).
  void Add(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now);
  void Update(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now);
  void Remove(VgpuId id, Nanos now);

  // The decision for it is carried out: it runs, with its target resident. Its turn begins. `moving`: time since the
  // decision, from which the turn's length follows. Owed once for every decision that lets an active vGPU run that was
  // stopped, or gives it more than it had; if another decision follows before, once that one is carried out.
  // `typical`: other moves will take about as long.
  void Ready(VgpuId id, Nanos now, Nanos moving, bool typical = true);

  // Takes the facts of all vGPUs at `now` as one event: no decision follows from half of them. `capacity`: bytes that
  // all together may have resident. Returns the decision for each, in the same order, for the caller to carry out;
  // target 0 and not running for an unknown id. The result holds until the next call.
  std::span<const ResidencyDecision> Observe(std::span<const ResidencyFacts> facts, std::uint64_t capacity, Nanos now);
  Nanos NextDeadline() const { return deadline_; }  // when Observe must be called at the latest; kNever

  // For the order over several GPUs.
  TurnWishes Wishes() const;

  Mode CurrentMode() const { return mode_; }
  // For people: "3 active vGPUs use 61 GiB of 40 GiB: turns of 4.1 s".
  std::string Why() const;
  Nanos TurnLength() const;  // of the turn that is under way, 0 if none is

 private:
  using Member = ResidencyMember;

  Member* Find(VgpuId id);
  void Take(Nanos now);
  void BecomeActive(Member& member);
  void BecomeIdle(Member& member);
  ResidencyDecision Tell(VgpuId id);
  void SetTarget(Member& member, bool runs, std::uint64_t target);
  void AddHoles(Member& member);

  // One pass over everything; each step sees what those before it decided.
  void Schedule();
  void EndGraces();
  void UpdateQueue();
  void UpdateMode();
  void ShareTogether();
  void ShareInTurns();
  void KeepIdle();
  void StartTurns();
  void UpdateDeadline();

  ResidencyConfig config_;
  std::uint64_t capacity_ = 0;
  std::map<VgpuId, Member> members_;
  ResidencyTurns turns_;  // of the active ones
  Mode mode_ = Mode::kTogether;
  Nanos comfortable_since_ = kNever;  // in turns: all active demands fit with room to spare
  Nanos now_ = 0;
  Nanos deadline_ = kNever;

  // As of the last event. Kept for their memory, too: an event allocates nothing once they are large enough.
  std::vector<Member*> idle_;                // the last to lose memory first
  std::vector<ResidencyDecision> observed_;  // what Observe returned
  std::uint64_t in_use_ = 0;                 // sum of the active demands, or as much of it as the type holds
  bool fits_ = true;                         // that
  std::uint64_t left_ = 0;                   // of the capacity, while it is handed out
};

}  // namespace tessera::sched
