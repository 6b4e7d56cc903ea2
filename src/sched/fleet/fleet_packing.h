// Packing: which tenants lie together on a GPU, so that promises are kept and few GPUs are needed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {

// First fit decreasing: the tenants that need most of a GPU first, each on the first GPU that has room. `most_gpus`: no
// more than these; 0: as many as it takes. Who fits nowhere is refused.
Placement FirstFitDecreasing(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t most_gpus = 0);

// Each where it leaves the least fragmentation (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), in the order
// in which they are given: of the time and memory that are left of a GPU, the part that a tenant drawn at random from
// all of them could not use.
Placement LeastFragmentation(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t most_gpus = 0);

// Puts those that were refused on the GPU, of `gpus`, on which they do the least harm: where what they use is too much
// now and then, and no promise is broken. Who would break one stays refused.
Placement Crowd(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& placement,
                std::size_t gpus);

// A GPU of its own for each, or as many as it runs on.
Placement Exclusive(const std::vector<FleetTenant>& tenants, std::size_t most_gpus = 0);

// Local search: empties one GPU after the other. Its tenants go to other GPUs, and tenants are moved and exchanged at
// random as long as that lowers what is asked for beyond what there is; sometimes although it does not. Gives the last
// placement in which nothing is. It goes on while `go_on` says so, which is asked before each step. The same seed and
// the same number of steps give the same placement. Tenants on several GPUs stay where they are.
Placement EmptyGpus(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& start,
                    std::uint64_t seed, const std::function<bool()>& go_on);

}  // namespace tessera::sched
