// How much of a vGPU may lie in host memory, and how much of the GPU it therefore has for good.
#pragma once

#include <cstdint>

#include "sched/residency/residency_state.h"

namespace tessera::sched {

// What more of the vGPU memory.swap.max lets into host memory.
std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu);

// What more of it may go there to make room for others. If memory.swap.max is not set, a vGPU with a limit keeps what
// fits into that: no more goes out than it may allocate, or has, beyond its limit.
std::uint64_t MaySwap(const ResidencyState& state, const VGpuResidence& vgpu);

// What of a vGPU without a limit has to be on the GPU, with what it waits for, because memory.swap.max lets no more of
// it out. Its memory takes no turns as far as that goes.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

// What of the GPU the vGPU has for good: its promise, what is pinned, and what is kept.
std::uint64_t HasForGood(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

}  // namespace tessera::sched
