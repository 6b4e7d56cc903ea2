// How much of a vGPU may lie in host memory, and how much of the GPU it therefore has for good.
#pragma once

#include <cstdint>

#include "sched/residency/residency_state.h"

namespace tessera::sched {

// Bytes of the vGPU that memory.swap.max lets into host memory, beside those that are there.
std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu);

// Bytes of it that may go there to make room for others. If memory.swap.max is not set, a vGPU with a limit keeps what
// fits into that: no more goes out than it may allocate, or has, beyond its limit.
std::uint64_t MaySwap(const ResidencyState& state, const VGpuResidence& vgpu);

// Bytes of a vGPU without a limit that have to be on the GPU, with those that it waits for, because memory.swap.max
// lets no more of it out. They take no turns.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

// Bytes of the GPU that the vGPU has for good: its promise, or what is pinned and what is kept.
std::uint64_t HasForGood(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

}  // namespace tessera::sched
