// Squeezing: a process's chunks with holes go out, and come back without them. So memory that no allocation uses
// becomes room.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

// Whether chunks of the vGPU may go to host memory for a moment: there is host memory for a few, and memory.swap.max
// lets it have them there.
bool MaySqueeze(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

// Bytes of room that its holes could give; 0 where they may not be squeezed.
std::uint64_t Squeezable(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

// How many bytes of chunks with holes are to go out of the process at a time, so that squeezing gives `lacking` bytes:
// no more than there is host memory for, and 1 GiB at most. The rest follows when these are back.
std::uint64_t SqueezeStep(const ResidencyState& state, const VGpuResidence& vgpu, const ProcessResidence& process,
                          std::uint64_t lacking);

}  // namespace tessera::sched
