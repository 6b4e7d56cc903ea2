// A GPU whose memory programs take turns to use, in virtual time, for tests of Residency. Deterministic.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sched/residency/residency.h"

namespace tessera::sched {

// Programs do one phase after the other, and then begin anew: so much work, for which so much has to be resident, and a
// rest after it. All that run do so at full speed: who may run is looked at here, not who executes.
struct Phase {
  std::uint64_t bytes = 0;
  Nanos work = kNever;  // kNever: without end
  Nanos rest = 0;
};

// The way to host memory: one chunk at a time in each direction, both at once.
struct MoveLink {
  std::uint64_t bytes_per_second = 50'000'000'000;
  std::uint64_t chunk = 1ull << 30;
};

class ResidencySimulator {
 public:
  explicit ResidencySimulator(std::uint64_t capacity, MoveLink link = {}, ResidencyConfig config = {});

  // Its first phase begins at once, or after `start`.
  void Add(VgpuId id, std::vector<Phase> phases, std::uint32_t weight = 100, std::uint32_t priority = 8,
           Nanos start = 0);
  void Remove(VgpuId id);
  void Run(Nanos duration);

  // Figures are of the time since the last call of this.
  void StartMeasuring();
  double RanPct(VgpuId id) const;
  double StalledPct() const;           // somebody was active, and nobody ran
  Nanos LongestWait(VgpuId id) const;  // active without running
  Nanos LongestTurn() const { return longest_turn_; }
  Nanos LongestMove() const { return longest_move_; }  // until a vGPU was ready
  std::uint64_t BytesLoaded() const { return loaded_; }
  std::uint64_t ResidentOf(VgpuId id) const { return programs_.at(id).resident; }

  const Residency& residency() const { return residency_; }
  Nanos now() const { return now_; }

  // What must never happen: more resident than there is, a deadline in the past, time that stands still.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Program {
    std::vector<Phase> phases;
    std::size_t phase = 0;
    bool active = false;
    Nanos left = 0;  // of the phase's work; kNever: without end
    Nanos wake = 0;  // not active: until then
    ResidencyDecision decision;
    std::uint64_t resident = 0;
    Nanos owed_since = kNever;  // a Ready
    // Figures.
    Nanos ran = 0;
    Nanos waits_since = 0;  // active and does not run
    Nanos longest_wait = 0;
    bool runs() const { return active && decision.runs && owed_since == kNever; }
  };
  struct Move {
    VgpuId vgpu;
    std::uint64_t bytes;
    Nanos done;
  };

  void Step(VgpuId id, Program& program);
  void Begin(VgpuId id, Program& program);
  void Obey();
  void TellReady();
  void StartMoves();
  std::optional<Move> NextOut() const;
  std::optional<Move> NextIn() const;
  void FinishMove(std::optional<Move>& move, bool in);
  void Elapse(Nanos until);
  Nanos NextEvent() const;
  std::uint64_t ResidentSum() const;
  double Pct(Nanos time) const;
  void Require(bool holds, const std::string& what);

  const std::uint64_t capacity_;
  const MoveLink link_;
  Residency residency_;
  std::map<VgpuId, Program> programs_;
  std::optional<Move> in_;
  std::optional<Move> out_;
  Nanos now_ = 0;
  int steps_without_time_ = 0;

  Nanos measured_from_ = 0;
  Nanos stalled_ = 0;
  Nanos longest_turn_ = 0;
  Nanos longest_move_ = 0;
  std::uint64_t loaded_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace tessera::sched
