// How much host memory the mover should have ready.
#pragma once

#include <cstdint>

#include "sched/residency/residency_state.h"

namespace tessera::sched {

// As much as may have to go out: what is allocated beyond what fits. Pinned host memory is made slowly, so the pool
// grows ahead of need. Never more than the pool may have.
std::uint64_t PoolNeeded(const ResidencyState& state);

}  // namespace tessera::sched
