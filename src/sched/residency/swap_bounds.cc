#include "sched/residency/swap_bounds.h"

#include <algorithm>

namespace tessera::sched {

std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu) {
  std::uint64_t out = 0;
  for (const ProcessResidence& process : vgpu.processes) out += process.OutSoon();
  return Less(vgpu.swap.value_or(state.pool.most + state.file), out);
}

// A process is believed to have no more in host memory than it has allocated.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  if (!vgpu.swap) return 0;
  std::uint64_t all = 0;
  for (const ProcessResidence& process : vgpu.processes)
    all += process.All(UpTo(state.chunk, process.allocated)) + process.WantedMovable(now);
  return Less(all, DownTo(state.chunk, *vgpu.swap));
}

}  // namespace tessera::sched
