#include "sched/residency/squeeze.h"

#include <algorithm>

#include "sched/residency/swap_bounds.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kMostAtOnce = 16;  // chunks: enough that copies keep the link busy
constexpr std::uint64_t kFewest = 2;       // chunks that there must be host memory for

// Host memory that the vGPU's chunks may have for a moment, in whole chunks, of which each takes one.
std::uint64_t HostMemory(const ResidencyState& state, const VGpuResidence& vgpu) {
  const std::uint64_t pool = Less(state.pool.most, state.pool.used);
  return DownTo(state.chunk, vgpu.swap ? std::min(pool, SwapLeft(state, vgpu)) : pool);
}

}  // namespace

bool MaySqueeze(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  return !state.mover_hopeless && now >= state.pool.full_until && HostMemory(state, vgpu) >= kFewest * state.chunk;
}

std::uint64_t Squeezable(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  if (!MaySqueeze(state, vgpu, now)) return 0;
  std::uint64_t holes = 0;
  for (const ProcessResidence& process : vgpu.processes) holes += process.has_line ? process.holes : 0;
  return holes;
}

std::uint64_t SqueezeStep(const ResidencyState& state, const VGpuResidence& vgpu, const ProcessResidence& process,
                          std::uint64_t lacking) {
  if (process.holes == 0) return 0;
  // The chunks with most holes go first, so that these suffice.
  const double part = static_cast<double>(std::min(lacking, process.holes)) / static_cast<double>(process.holes);
  const auto needed = static_cast<std::uint64_t>(part * static_cast<double>(process.holed));
  return std::min({UpTo(state.chunk, std::max<std::uint64_t>(needed, 1)), process.holed, kMostAtOnce * state.chunk,
                   HostMemory(state, vgpu)});
}

}  // namespace tessera::sched
