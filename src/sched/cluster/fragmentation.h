#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sched/cluster/demand.h"
#include "sched/cluster/node_room.h"

namespace tessera::sched {

// A demand, and which part of all pods has it.
struct TypicalDemand {
  Demand demand;  // without its host memory, which fragmentation does not look at
  double part = 0;
};

// The commonest demands, from the commonest on, that at least this part of all pods has; their parts are 1 together. At
// most kMostTypical, so that a list whose pods are all different does not take hours.
constexpr std::size_t kMostTypical = 200;
std::vector<TypicalDemand> TypicalDemands(const std::vector<Demand>& pods, double part = 0.95);

// How much of what is left of GPUs a pod cannot use: FGD's measure (Weng et al., "Beware of Fragmentation: Scheduling
// GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023). For one demand: all that is left of the
// node's GPUs if the demand does not fit, or asks for no GPU; else what is left of those GPUs that are too full for it.
// For a distribution of demands: the expected value.
class Fragmentation {
 public:
  explicit Fragmentation(const std::vector<TypicalDemand>& typical);

  // GPU milli, [0, room.TotalMilli()].
  double Of(const NodeRoom& room) const;

 private:
  struct Group {  // of demands that ask for as much of as many GPUs of the same types
    std::int32_t gpus = 0, gpu_milli = 0;
    GpuModels models = 0;
    std::vector<std::pair<std::int32_t, double>> up_to_cpu;  // part of the demands that ask for at most so much CPU
    double part = 0;
  };
  double without_gpu_ = 0;  // part of the demands that ask for none
  std::vector<Group> groups_;
};

}  // namespace tessera::sched
