// Decides whose memory lies on one GPU and who may run meanwhile: admission, turns, victims, exchange, the pool.
//
// It knows neither clock nor threads nor I/O: the same calls give the same plans. One object serves one GPU. The caller
// takes a state (a snapshot), asks for a plan, carries its actions out, and does so again until a plan has no actions.
// docs/memory.md tells the rules.
#pragma once

#include <cstdint>
#include <string>

#include "sched/residency/residency.h"
#include "sched/residency/residency_plan.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

class ResidencyPlanner {
 public:
  explicit ResidencyPlanner(ResidencyConfig config = {});
  // Other lengths of turns, from the next one on.
  void Configure(ResidencyConfig config);

  // What to do now. `now` must not go back. The reference holds until the next call.
  const ResidencyPlan& Plan(const ResidencyState& state, Nanos now);

  // The process asks for `bytes` of room; 0: it asks for what it must have back (`recalled`). Where it has to wait, the
  // caller notes the wish in the state and plans. A grant is not in `state` yet: the caller adds it.
  RoomAnswer Ask(const ResidencyState& state, ProcessId process, std::uint64_t bytes, Nanos now) const;

  // As of the last plan.
  bool TakesTurns() const;
  Nanos TurnLength() const;  // of the turn that is under way; 0 if none is
  std::string Why() const;   // for people

 private:
  Residency policy_;
  ResidencyPlan plan_;
};

// What an action changes at once, before the mover has done anything: for whoever carries plans out in a simulation.
void Apply(const ResidencyAction& action, Nanos now, ResidencyState& state);

}  // namespace tessera::sched
