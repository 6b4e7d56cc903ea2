#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "plan/model/figures.h"
#include "sched/goals/goal.h"
#include "sched/shares/shares.h"

namespace tessera::plan {

// A program's part on one GPU: what it wants of the GPU, and what it gets at this moment. The program (Runner) gives it
// work, the GPU says how it executes, the simulator lets time pass.
struct Part {
  sched::VgpuId vgpu = 0;
  sched::Shares shares;
  std::optional<sched::Goal> goal;  // only SteeredTime knows goals
  Nanos queue = 0;                  // Program::in_flight and Program::sync
  Nanos sync = 0;
  bool coupled = false;  // its work waits for parts on other GPUs

  Nanos work = 0;            // GPU time that the program waits for; kNever: without end
  Nanos in_flight = kNever;  // of that, what still executes although its gate is closed; kNever: the gate is open
  bool held = false;         // its memory is not there

  std::uint32_t among = 0;  // it executes, as one of so many that the GPU divides its time among; 0: it does not
  std::uint32_t pace = 0;   // the same for its work, which also waits for the program's parts on other GPUs

  Nanos done = 0;  // work since it was added
  PartFigures figures;
  Nanos waits_since = kNever;  // has work and does not execute
  Nanos held_since = kNever;   // the same, for memory
  Nanos billed_before = 0;     // when measuring began
  Nanos window_before = 0;     // executed when the window began
  Nanos limited_since = 0;     // its present limit was given
  Nanos billed_then = 0;

  bool Executes() const { return among > 0; }
  // When the work or what is in flight ends, if nothing changes.
  Nanos EndsAt(Nanos now) const {
    const Nanos left = std::min(work, in_flight);
    return pace == 0 || left == kNever ? kNever : now + left * pace;
  }
  // Lets time pass from `from` to `to`, in which nothing changes.
  void Elapse(Nanos from, Nanos to);
  // A window of this length is over.
  void EndWindow(Nanos length) {
    figures.windows.push_back(Percent(figures.executed - window_before, length));
    window_before = figures.executed;
  }
};

}  // namespace tessera::plan
