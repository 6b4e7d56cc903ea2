#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct ClusterChoices {
  std::string pods, nodes;  // files
  std::string policy = "tessera";
  std::uint32_t seeds = 1;
  double arrive_pct = 130;
  double moves_pct = -1;  // below 0: 2 by our own policy, else none
};

// `tessera plan PODS --nodes NODES`: how much of the nodes' GPUs pods can have that come in random order and stay.
// docs/plan-cluster.md. Uses all processors; blocks.
Result<int> PlanPods(const Common& common, const ClusterChoices& choices);

}  // namespace tessera::cli
