#include "sched/residency/pool_growth.h"

#include <algorithm>

#include "sched/residency/exchange.h"

namespace tessera::sched {

std::uint64_t PoolNeeded(const ResidencyState& state) {
  std::uint64_t shared = 0;    // what vGPUs without a limit want together
  std::uint64_t promised = 0;  // of the GPU, to those with one
  std::uint64_t beyond = 0;    // what those have to have elsewhere
  std::uint64_t out = 0;       // what is out already, or about to go
  for (const VGpuResidence& vgpu : state.vgpus) {
    std::uint64_t demand = 0;
    for (const ProcessResidence& process : vgpu.processes) {
      demand += process.All() + process.wanted;
      const std::uint64_t going = process.push + (process.moving == Moving::kOut ? process.ordered : 0);
      out += process.swapped + UpTo(state.chunk, going) + std::min(process.hot_out, Exchange::kMostBytes);
    }
    promised += vgpu.promise.value_or(0);
    beyond += vgpu.promise ? UpTo(state.chunk, Less(demand, *vgpu.promise)) : 0;
    shared += vgpu.promise ? 0 : demand;
  }
  beyond += UpTo(state.chunk, Less(shared, Less(state.capacity, promised) / 2));
  return std::min(state.pool.most, std::max(beyond, out));
}

}  // namespace tessera::sched
