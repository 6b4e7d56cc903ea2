#include "sched/residency/swap_bounds.h"

#include <algorithm>

namespace tessera::sched {

std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu) {
  std::uint64_t out = 0;
  for (const ProcessResidence& process : vgpu.processes) out += process.OutSoon() + process.stranded;
  return Less(vgpu.swap.value_or(state.pool.most + state.file), out);
}

// A process is believed to have no more in host memory than it has allocated. Stranded memory takes its part of the
// bound.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  if (!vgpu.swap) return 0;
  std::uint64_t all = 0, stranded = 0;
  for (const ProcessResidence& process : vgpu.processes) {
    const std::uint64_t most_out = UpTo(state.chunk, process.allocated);
    all += process.All(most_out) + process.WantedMovable(now);
    stranded += std::min(process.stranded, Less(most_out, process.swapped));
  }
  return Less(all, Less(DownTo(state.chunk, *vgpu.swap), stranded));
}

}  // namespace tessera::sched
