#pragma once

#include <array>
#include <vector>

#include "sched/cluster/demand.h"
#include "sched/cluster/gpu_prices.h"
#include "sched/cluster/node_room.h"

namespace tessera::sched {

// What the rest of a node is worth to pods still to come, whose distribution is known. In GPUs.
class FleetValue {
 public:
  // `pods`: as often as they come. `nodes`: empty ones.
  FleetValue(const std::vector<Demand>& pods, const std::vector<NodeRoom>& nodes);

  // What can be cut from its GPUs, but at most as many GPUs as its processors are enough for; more if pods that can use
  // few types of GPU want this one.
  double Of(const NodeRoom& room) const;
  // What the demand costs at least, wherever it is.
  double Of(const Demand& demand) const { return prices_.OfDemand(demand); }
  // How many GPUs all those pods need at least, of whatever type and processors.
  double least_gpus() const { return prices_.gpus(); }

 private:
  GpuPrices prices_;
  double cpu_of_gpu_ = 0;                        // thousandths of a processor that pods ask for with a GPU's worth
  std::array<double, kMostGpuModels> wanted_{};  // part of the type's GPUs that pods want that cannot use every type
};

}  // namespace tessera::sched
