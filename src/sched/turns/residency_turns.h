// Turns of the vGPUs that compete for one GPU's memory: who runs when not all fits.
//
// Every class (vGPUs of one priority) has a turn of its own: its first one leads, those that fit beside it run along.
// The first of the highest class runs whatever it needs; lower classes share what is left by the same rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "sched/turns/turn_wishes.h"

namespace tessera::sched {

struct ResidencyConfig {
  Nanos turn_min = 250 * kMillisecond;  // bounds of a turn's length
  Nanos turn_max = 30 * kSecond;
  double most_moving = 0.10;   // of the time may go into moving: a turn's length follows from the measured move
  double comfort = 0.95;       // of the capacity must be enough for all before turns end
  Nanos settle = 2 * kSecond;  // and has to have been for so long
  // While others wait, a vGPU that becomes idle keeps its turn for as long as its move took, at most so long: a gap
  // that is shorter than what it would cost is no reason to move.
  Nanos grace = 100 * kMillisecond;
  // A program may work so long on memory in host memory until people are told (HostWork); 0: they are not.
  Nanos on_host = 60 * kSecond;
};

// The decision for one vGPU, to be carried out at once. A vGPU that stops may lose memory, down to `target`. A vGPU
// that runs and has less than `target` is stopped until it has that.
struct ResidencyDecision {
  VgpuId vgpu = 0;
  std::uint64_t target = 0;  // bytes: what may be resident of it
  bool runs = true;
  bool operator==(const ResidencyDecision&) const = default;
};

// A vGPU that competes for the memory of one GPU, as the policy knows it.
struct ResidencyMember {
  // Said by events.
  std::uint32_t weight = 1;
  std::uint32_t priority = 0;
  std::uint64_t demand = 0;
  std::uint64_t holes = 0;
  std::uint64_t resident = 0;
  bool active = false;  // or within its grace
  GangTurn gang = GangTurn::kOpen;
  Nanos leaves_at = kNever;  // within its grace: it becomes idle then
  Nanos changed_at = 0;      // became active or idle

  // Its turns, while it is active.
  std::uint64_t place = 0;  // in the queue of its class: the least is first
  Nanos had = 0;            // ran so long since it got this place
  Nanos had_before = 0;     // of that, before it began to lead
  bool leads = false;       // the turn of its class is its own
  bool waited = false;      // was not chosen once since it got this place
  bool chosen = false;      // runs in this turn, as the one that leads or along with it
  bool kept = false;        // was chosen, and the turn is still the same
  bool started = false;     // has been ready since it was chosen

  // How long it took until it was ready.
  bool measured = false;
  bool rough = false;  // by nothing typical yet
  Nanos last_move = 0;
  Nanos mean_move = 0;

  // The decision, and what the caller knows of it.
  ResidencyDecision decided;
  ResidencyDecision told;
  std::optional<std::uint64_t> ready_with = 0;  // it runs and has this resident, by what the caller was told and said

  Nanos Move() const;
  bool Ready() const { return decided.runs && ready_with && decided.target <= *ready_with; }
  // Turns are its own. A member that fits beside every leader runs along, and its memory stays.
  bool TakesTurns() const { return leads || waited; }
  void NoteMove(Nanos moving, bool typical);
  // The caller knows what is decided.
  void Tell();
};

// The lengths of turns follow from this. A turn is in proportion to its weight: so long on average that moves take
// `most_moving` of the time of a round, but none is too short, and none too long as far as the weights allow it.
class TurnMeasure {
 public:
  // One that takes turns; `move`: how long its memory takes to come, where that is known.
  void Add(std::uint32_t weight, std::optional<Nanos> move);
  // Nanoseconds of a turn for each unit of weight. At least one was added.
  double TimePerWeight(const ResidencyConfig& config) const;
  static Nanos Length(const ResidencyConfig& config, double time_per_weight, std::uint32_t weight);

 private:
  double moves_ = 0, measured_ = 0, turns_ = 0, weights_ = 0;
  std::uint32_t least_ = UINT32_MAX, most_ = 0;
};

// The queue of the active members, and their turns. Pure: the time is what its caller adds to `had`. The members belong
// to the caller and stay where they are from Add until Clear.
class ResidencyTurns {
 public:
  // Other lengths of turns, from the next one on.
  void Configure(const ResidencyConfig& config) { config_ = config; }

  // Lists the active members again, at each event: Clear, Add for each, Measure.
  void Clear();
  void Add(ResidencyMember& member) { queue_.push_back(&member); }
  void Measure();

  // To the back of the queue of its class.
  void Enqueue(ResidencyMember& member);
  // All turns begin: nothing that was had before counts.
  void Restart();
  // Chooses who runs with `capacity` bytes, and ends the turns that are over.
  void Choose(std::uint64_t capacity);

  // By class; in a class by whose turn it is, who runs along, then the queue.
  std::span<ResidencyMember* const> Queue() const { return queue_; }
  Nanos NextEnd(Nanos now) const;
  // Of the first in the queue: how long its turns are, and how long the one is that is under way.
  Nanos FirstLength() const;
  Nanos FirstTurn() const;

 private:
  // The active ones of a priority, in the order of their turns, and what the length of these follows from.
  struct Class {
    std::span<ResidencyMember*> queue;
    double time_per_weight = 0;
  };

  void Sort();
  void MeasureClass(Class& members) const;
  Nanos Length(const Class& members, const ResidencyMember& member) const;
  Nanos TurnEnd(const Class& members, const ResidencyMember& leader) const;
  static bool Waits(const Class& members);
  static ResidencyMember* Leader(const Class& members);
  void ChooseByGangs(std::uint64_t capacity);
  void ChooseThoseThatFit(std::uint64_t capacity);
  bool Rotate(Class& members);
  void SettleTurn(Class& members);

  ResidencyConfig config_;
  std::uint64_t next_place_ = 0;
  // Kept for their memory, too: an event allocates nothing once they are large enough.
  std::vector<ResidencyMember*> queue_;
  std::vector<Class> classes_;  // of queue_
};

}  // namespace tessera::sched
