// The memory of ResidencyPlanner: what it knows of vGPUs and processes from one plan to the next.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/residency/exchange.h"
#include "sched/residency/residency_plan.h"

namespace tessera::sched {

struct ProcessRecord {
  std::uint64_t plan = 0;  // number of the last plan that saw it
  Exchange exchange;
  bool exchanging = false;   // it is stopped so that colder memory of it makes place for hotter
  std::uint64_t colder = 0;  // what is to go out for that, and was not ordered yet
  Nanos moved_before = 0;    // its `moved_for` when that began
  bool sent = false;         // it is away, and what can be moved was ordered out
  bool moves = false;        // memory of it is to go or to come: it stays stopped until that has begun. In one plan
  // Since when it has been stopped without being moved and without anything to do; kNever: it is not so.
  Nanos rests_since = kNever;
  // Since when it has been stopped without being moved, though its peers may have work; kNever: it is not so.
  Nanos keeps_peers_since = kNever;
};

struct VGpuRecord {
  std::uint64_t plan = 0;
  std::uint32_t weight = 0;
  std::uint32_t priority = 0;
  VGpuGoal goal{.runs = false};
  Nanos worked_at = -kNever / 2;  // when it last had something to do; its promise is kept for a while after that
  Nanos since = 0;                // when the move to that goal began
  bool ready = false;             // the policy has heard that the goal is reached
  // When a process was last stopped so that memory comes in, though it ran without that memory for long.
  Nanos tried_at = -kNever / 2;
};

}  // namespace tessera::sched
