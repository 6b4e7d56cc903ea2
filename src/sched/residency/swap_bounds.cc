#include "sched/residency/swap_bounds.h"

#include <algorithm>

namespace tessera::sched {
namespace {

std::uint64_t OutSoon(const VGpuResidence& vgpu) {
  std::uint64_t sum = 0;
  for (const ProcessResidence& process : vgpu.processes) sum += process.OutSoon();
  return sum;
}

}  // namespace

std::uint64_t SwapLeft(const ResidencyState& state, const VGpuResidence& vgpu) {
  return Less(vgpu.swap.value_or(state.pool.most + state.file), OutSoon(vgpu));
}

std::uint64_t MaySwap(const ResidencyState& state, const VGpuResidence& vgpu) {
  if (vgpu.swap || !vgpu.limit) return SwapLeft(state, vgpu);
  std::uint64_t allocated = 0;
  for (const ProcessResidence& process : vgpu.processes) allocated += process.allocated;
  // Whole chunks go, so that a part of one may be needed.
  const std::uint64_t beyond = Less(std::max(vgpu.max.value_or(0), allocated), *vgpu.limit);
  return Less(UpTo(state.chunk, beyond), OutSoon(vgpu));
}

// A process is believed to have no more in host memory than it has allocated.
std::uint64_t Kept(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  if (!vgpu.swap || vgpu.promise) return 0;
  std::uint64_t all = 0;
  for (const ProcessResidence& process : vgpu.processes)
    all += process.All(UpTo(state.chunk, process.allocated)) + process.wanted + process.Granted(now);
  return Less(all, DownTo(state.chunk, *vgpu.swap));
}

std::uint64_t HasForGood(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  const std::uint64_t pinned = vgpu.Pinned();
  return vgpu.promise ? std::max(*vgpu.promise, pinned) : pinned + Kept(state, vgpu, now);
}

}  // namespace tessera::sched
