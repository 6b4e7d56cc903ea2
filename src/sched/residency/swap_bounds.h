// How much of a vGPU may lie in host memory, and how much of it therefore has to be on the GPU.
#pragma once

#include <cstdint>

#include "sched/residency/residency_state.h"

namespace tessera::sched {

// Bytes of the vGPU that memory.swap.max lets into host memory, beside those that are there.
std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu);

// Bytes of a vGPU that have to be on the GPU, with those that it waits for, because memory.swap.max lets no more of it
// out. They take no turns. Pinned memory is not among them.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

}  // namespace tessera::sched
