// What a vGPU wants to have on the GPU, and how much of that nobody takes from it: memory.request and memory.limit.
#pragma once

#include <cstdint>

#include "sched/residency/residency_state.h"

namespace tessera::sched {

// The claims of one vGPU to the GPU's memory, bytes. `pinned` and `floor` are its own; what `demand` has beyond `floor`
// is in turns with the others.
struct VGpuClaims {
  std::uint64_t pinned = 0;    // cannot be moved, or will be so once it has what it waits for
  std::uint64_t demand = 0;    // can be moved and is used, wherever it lies, as far as memory.limit lets it in
  std::uint64_t holes = 0;     // beside it: what chunks that are out take if they come back whole
  std::uint64_t resident = 0;  // of `demand`: on the GPU
  std::uint64_t floor = 0;     // of `demand`: stays on the GPU, or comes back before others go on
  std::uint64_t kept = 0;      // of `floor`: may not go out
};

// `uses_request`: its memory up to memory.request is not to be taken; false for one that is idle, whose promise is
// lent.
VGpuClaims ClaimsOf(const ResidencyState& state, const VGpuResidence& vgpu, bool uses_request, Nanos now);

// Bytes of the GPU that the vGPU has whatever others do: what it promised it may pin, too, so a promise that is lent
// counts in full.
std::uint64_t HasForGood(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

// Bytes that cannot be taken from the vGPU now: what is promised and not in use is lent.
std::uint64_t HasForNow(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now);

}  // namespace tessera::sched
