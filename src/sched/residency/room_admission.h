// Admission: the answer to a program that asks for room on the GPU.
#pragma once

#include <cstdint>

#include "sched/residency/residency_plan.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

// The answer to a process that asks for `bytes` of room; 0: for memory that must come back, for which it can only wait.
// `pressed`: others wait or are stopped, so room is granted in turn only. A process that is not in `state` is refused.
RoomAnswer AnswerRoom(const ResidencyState& state, ProcessId process, std::uint64_t bytes, bool pressed, Nanos now);

// A sentence without a subject, for people: "is more than ...".
const char* Text(RoomAnswer::Reason reason);

}  // namespace tessera::sched
