// Whose memory is resident on one GPU, and who may run: the residency policy.
//
// A pure function of events, as TokenScheduler is: no clock, no thread, no I/O; the same events give the same
// decisions. One instance serves one GPU. Not thread-safe. It knows bytes that can be moved only: what cannot be moved
// is taken off the capacity by its caller. docs/memory.md tells the rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

struct ResidencyConfig {
  Nanos turn_min = 250 * kMillisecond;  // bounds of a turn's length
  Nanos turn_max = 30 * kSecond;
  double most_moving = 0.10;   // of the time may go into moving: a turn's length follows from the measured move
  double comfort = 0.95;       // of the capacity must be enough for all before turns end
  Nanos settle = 2 * kSecond;  // and has to have been for so long
  // While others wait, one that becomes idle keeps its turn for as long as its move took, at most so long: a gap that
  // is shorter than what it would cost is none.
  Nanos grace = 100 * kMillisecond;
};

// What is to be made true of one vGPU, all of it at once. For those that stop, memory may go; what they are promised
// here is what they keep meanwhile. Who runs and has less than `target` is stopped until it has that.
struct ResidencyDecision {
  VgpuId vgpu = 0;
  std::uint64_t target = 0;  // bytes: what may be resident of it
  bool runs = true;
  bool operator==(const ResidencyDecision&) const = default;
};

class Residency {
 public:
  enum class Mode {
    kTogether,  // what the active ones use fits: all run
    kTurns,     // it does not: they take turns
  };

  explicit Residency(ResidencyConfig config = {});
  // Other lengths of turns, from the next one on.
  void Configure(ResidencyConfig config) { config_ = config; }

  // Bytes that all together may have resident.
  void SetCapacity(std::uint64_t bytes, Nanos now);

  // `priority` and `weight` as in Shares: lower priority numbers go first and never wait for higher ones; a turn's
  // length is in proportion to the weight. A vGPU begins idle, running, with nothing; one whose priority changes goes
  // to the back of its new class. Ignored: an id that exists (Add) or does not (all others).
  void Add(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now);
  void Update(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now);
  void Remove(VgpuId id, Nanos now);

  // What it wants to have resident when it runs, and what it has.
  void Demand(VgpuId id, std::uint64_t bytes, Nanos now);
  void Resident(VgpuId id, std::uint64_t bytes, Nanos now);

  // It has work, or wants memory that it does not have; it has none. One that is stopped stays active: what it has to
  // do waits.
  void Active(VgpuId id, Nanos now);
  void Idle(VgpuId id, Nanos now);

  // What was decided for it is true: it runs, with its target resident. Its turn begins. `moving`: time since the
  // decision, from which the turn's length follows. Owed once for every decision by which an active one may run that
  // was stopped, or gets more than it had; if another follows before that is true, once that one is true. `typical`:
  // other moves will take about as long.
  void Ready(VgpuId id, Nanos now, Nanos moving, bool typical = true);

  void Advance(Nanos now);
  Nanos NextDeadline() const { return deadline_; }  // when Advance must be called at the latest; kNever

  // The decisions that changed since the last call; at most one for each vGPU.
  std::vector<ResidencyDecision> TakeDecisions();
  // As it stands; target 0, not running for an unknown id.
  ResidencyDecision DecisionFor(VgpuId id) const;

  Mode CurrentMode() const { return mode_; }
  // For people: "3 active vGPUs use 61 GiB of 40 GiB: turns of 4.1 s".
  std::string Why() const;
  Nanos TurnLength() const;  // of the turn that is under way, 0 if none is

 private:
  struct Member {
    // What events said.
    std::uint32_t weight = 1;
    std::uint32_t priority = 0;
    std::uint64_t demand = 0;
    std::uint64_t resident = 0;
    bool active = false;       // or within its grace
    Nanos leaves_at = kNever;  // within its grace: it becomes idle then
    Nanos changed_at = 0;      // became active or idle

    // Its turns, while it is active.
    std::uint64_t place = 0;  // in the queue of its class: the least is first
    Nanos had = 0;            // ran so long since it got this place
    Nanos had_before = 0;     // of that, before it began to lead
    bool leads = false;       // the turn of its class is its own
    bool chosen = false;      // runs in this turn, as the one that leads or along with it
    bool kept = false;        // was chosen, and the turn is still the same
    bool started = false;     // has been ready since it was chosen

    // How long it took until it was ready.
    bool measured = false;
    bool rough = false;  // by nothing typical yet
    Nanos last_move = 0;
    Nanos mean_move = 0;

    // What is decided, and what the caller knows of it.
    ResidencyDecision decided;
    ResidencyDecision told;
    std::optional<std::uint64_t> ready_with = 0;  // it runs and has this resident, by what the caller was told and said

    Nanos move() const { return std::max(last_move, mean_move); }
    bool ready() const { return decided.runs && ready_with && decided.target <= *ready_with; }
  };

  // The active ones of a priority, in the order of their turns, and what the length of these follows from.
  struct Class {
    std::span<Member*> queue;
    double time_per_weight = 0;
  };

  Member* Find(VgpuId id);
  void Take(Nanos now);
  void Enqueue(Member& member);
  void SetTarget(Member& member, bool runs, std::uint64_t target);

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

  // Turns (residency_turns.cc).
  void SortQueue();
  void MeasureClass(Class& members) const;
  Nanos Length(const Class& members, const Member& member) const;
  Nanos TurnEnd(const Class& members, const Member& leader) const;
  bool Waits(const Class& members) const;
  Member* Leader(const Class& members) const;
  void Choose();
  bool Rotate(Class& members);
  void SettleTurn(Class& members);
  Nanos NextTurnEnd() const;

  ResidencyConfig config_;
  std::uint64_t capacity_ = 0;
  std::map<VgpuId, Member> members_;
  Mode mode_ = Mode::kTogether;
  Nanos comfortable_since_ = kNever;  // in turns: all active demands fit with room to spare
  std::uint64_t next_place_ = 0;
  Nanos now_ = 0;
  Nanos deadline_ = kNever;

  // As of the last event. Kept for their memory, too: an event allocates nothing once they are large enough.
  std::vector<Member*> queue_;  // the active ones by class, in the order of their turns
  std::vector<Class> classes_;  // of queue_
  std::vector<Member*> idle_;   // the last to lose memory first
  std::uint64_t in_use_ = 0;    // sum of the active demands, or as much of it as the type holds
  bool fits_ = true;            // that
  std::uint64_t left_ = 0;      // of the capacity, while it is handed out
};

}  // namespace tessera::sched
