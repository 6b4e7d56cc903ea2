#include "sched/cluster/fleet_value.h"

#include <algorithm>

namespace tessera::sched {

FleetValue::FleetValue(const std::vector<Demand>& pods, const std::vector<NodeRoom>& nodes) : prices_(pods) {
  double cpu = 0, gpus = 0;
  for (const Demand& demand : pods) {
    if (demand.gpus == 0) continue;
    cpu += demand.cpu;
    gpus += prices_.OfDemand(demand);
  }
  if (gpus > 0) cpu_of_gpu_ = cpu / gpus;

  std::array<double, kMostGpuModels> there{};
  double all = 0;
  for (const NodeRoom& node : nodes) {
    there[node.model] += node.gpus;
    all += node.gpus;
  }
  // As if the pods asked for as many GPUs as there are, and spread evenly over those that they can use.
  for (const Demand& demand : pods) {
    if (demand.models == 0) continue;
    double usable = 0;
    for (std::size_t model = 0; model < there.size(); ++model) {
      if ((demand.models >> model & 1) != 0) usable += there[model];
    }
    if (usable == 0) continue;
    for (std::size_t model = 0; model < there.size(); ++model) {
      if ((demand.models >> model & 1) != 0) wanted_[model] += prices_.OfDemand(demand) / gpus * all / usable;
    }
  }
}

double FleetValue::Of(const NodeRoom& room) const {
  double gpus = 0;
  for (int gpu = 0; gpu < room.gpus; ++gpu) gpus += prices_.OfRoom(room.gpu_milli[gpu]);
  if (cpu_of_gpu_ > 0) gpus = std::min(gpus, room.cpu / cpu_of_gpu_);
  return gpus * (1 + wanted_[room.model]);
}

}  // namespace tessera::sched
