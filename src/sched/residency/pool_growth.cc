#include "sched/residency/pool_growth.h"

#include <algorithm>

#include "sched/residency/exchange.h"

namespace tessera::sched {

std::uint64_t PoolNeeded(const ResidencyState& state) {
  std::uint64_t shared = 0;  // what vGPUs want to have on the GPU
  std::uint64_t pinned = 0;  // of the GPU
  std::uint64_t beyond = 0;  // what they have to have elsewhere
  std::uint64_t out = 0;     // what is out already, or about to go
  for (const VGpuResidence& vgpu : state.vgpus) {
    std::uint64_t all = 0, its_pinned = 0;
    for (const ProcessResidence& process : vgpu.processes) {
      its_pinned += process.pinned + (process.pins ? process.wanted : 0);
      all += process.All() + (process.pins ? 0 : process.wanted);
      const std::uint64_t going = process.push + (process.moving == Moving::kOut ? process.ordered : 0);
      out += process.swapped + UpTo(state.chunk, going) + std::min(process.hot_out, Exchange::kMostBytes);
    }
    const std::uint64_t may_be_in = std::min(all, Less(vgpu.limit.value_or(UINT64_MAX), its_pinned));
    shared += may_be_in;
    pinned += its_pinned;
    beyond += UpTo(state.chunk, all - may_be_in);
  }
  beyond += UpTo(state.chunk, Less(shared, Less(state.capacity, pinned) / 2));
  return std::min(state.pool.most, std::max(beyond, out));
}

}  // namespace tessera::sched
