// Admission: the answer to a program that asks for room on the GPU.
#pragma once

#include <cstdint>
#include <string>

#include "sched/residency/residency_plan.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

// The answer to a process that asks for room. `pressed`: others wait or are stopped, so room is granted in turn only.
// It is refused only what it could not have if all memory were moved that can be. A process that is not in `state` is
// refused.
RoomAnswer AnswerRoom(const ResidencyState& state, const RoomWish& wish, bool pressed, Nanos now);

// What a refusal says to people: how much could be had, why not more, and what to do.
std::string Text(const RoomAnswer& answer);

}  // namespace tessera::sched
