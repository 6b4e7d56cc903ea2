#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/packing/rehome.h"
#include "server/checkpoint/suspensions.h"
#include "server/draining/move_queue.h"
#include "server/gpu/vgpu_table.h"
#include "server/migration/migration.h"

namespace tessera::server {

// The GPUs and the vGPUs on them, as the policy that moves vGPUs sees them at one moment (sched/packing/rehome.h).
struct Homes {
  std::vector<sched::Home> homes;  // by the GPUs' indices
  // vGPUs that were removed and still have programs included. One that moves is on both GPUs.
  std::vector<sched::Dweller> dwellers;
  std::vector<VgpuId> ids;  // of the dwellers

  // Those of `moves` that go together, each with its group's vGPUs that stay where they are.
  std::vector<std::vector<VGpuMove>> MovesOf(const sched::Rehoming& rehoming) const;
};

// On the loop's thread.
Homes HomesOf(const VGpuTable::Gpus& gpus, const Suspensions& suspensions, const MoveQueue& queue);

}  // namespace tessera::server
