// Packing of programs that move between the GPUs of their node while they run.
#pragma once

#include <cstddef>
#include <vector>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {

// What came of a record on such nodes.
struct BalancedFleet {
  Placement placement;       // where each program begins; the GPUs of a node lie side by side
  std::vector<double> over;  // of each GPU, the part of the intervals in which it was asked for more than it can do
  double tenants_over = 0;   // part of all tenants' intervals that were on a GPU that was over, [0, 1]
  std::size_t moves = 0;     // of programs to other GPUs

  double Over() const;  // of all of them
  // No more than FleetGpu says is over.
  bool Fits(const FleetGpu& gpu) const;
};

// The part of a GPU that a tenant uses on average, of its time and of its memory together.
double MeanSize(const FleetTenant& tenant, const FleetGpu& gpu);

// The fewest GPUs, from `least` to `most`, with which no more is over than FleetGpu says, in nodes of FleetGpu::node,
// the last of which may have fewer; if there is no such number, `most` of them. A program stays on its node, to which
// it comes by the `sizes` of all of them; its moves are those of sched::Balance, which knows of each interval what is
// wanted in it. `tenants` use one GPU each, have a record of use and were promised no time.
BalancedFleet PackNodes(const std::vector<FleetTenant>& tenants, const std::vector<double>& sizes, const FleetGpu& gpu,
                        std::size_t least, std::size_t most);

}  // namespace tessera::sched
