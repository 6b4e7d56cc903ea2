#pragma once

#include <optional>
#include <string_view>

#include "sched/cluster/demand.h"
#include "sched/cluster/fleet_value.h"
#include "sched/cluster/fragmentation.h"
#include "sched/cluster/node_room.h"

namespace tessera::sched {

// Which of the nodes that have room for a pod takes it. The first six are those that FGD was compared with and FGD
// itself, with the roundings of its published simulator, so that its figures can be repeated.
enum class FleetPolicy {
  kRandom,
  kDotProduct,  // where what is left is least like what the pod asks for (Tetris, SIGCOMM 2014)
  kClustering,  // beside pods of its kind
  kPacking,     // on GPUs that are in use, then on nodes that are, then elsewhere
  kBestFit,     // where least is left
  kFgd,         // where least is fragmented
  kTessera,     // where what is left is worth most
};

// "random", "dotprod", "clustering", "packing", "bestfit", "fgd", "tessera".
std::string_view NameOf(FleetPolicy policy);
std::optional<FleetPolicy> FleetPolicyOf(std::string_view name);

// How well a node suits a pod, and the GPUs that it would have there.
struct Suit {
  double score = 0;  // the greatest of all nodes' takes it
  GpuSet gpus = 0;
};

// The demand fits. kRandom: which GPUs, no more than that, and of parts of GPUs the tightest.
Suit SuitOf(FleetPolicy policy, const NodeRoom& room, const Demand& demand, const Fragmentation& fragmentation,
            const FleetValue& value);

}  // namespace tessera::sched
