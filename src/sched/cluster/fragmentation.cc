#include "sched/cluster/fragmentation.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace tessera::sched {

std::vector<TypicalDemand> TypicalDemands(const std::vector<Demand>& pods, double part) {
  std::map<Demand, std::int64_t> counts;
  for (Demand demand : pods) {
    demand.memory = 0;
    ++counts[demand];
  }
  std::vector<std::pair<std::int64_t, Demand>> ordered;
  for (const auto& [demand, count] : counts) ordered.emplace_back(count, demand);
  std::ranges::sort(ordered, std::greater());
  std::vector<TypicalDemand> typical;
  const double wanted = part * static_cast<double>(pods.size());
  double found = 0;
  for (const auto& [count, demand] : ordered) {
    if (found >= wanted || typical.size() == kMostTypical) break;
    found += static_cast<double>(count);
    typical.push_back({demand, static_cast<double>(count)});
  }
  for (TypicalDemand& each : typical) each.part /= found;
  return typical;
}

Fragmentation::Fragmentation(const std::vector<TypicalDemand>& typical) {
  std::map<std::tuple<std::int32_t, std::int32_t, GpuModels>, std::map<std::int32_t, double>> groups;
  for (const auto& [demand, part] : typical) {
    if (demand.gpus == 0) {
      without_gpu_ += part;
    } else {
      groups[{demand.gpus, demand.gpu_milli, demand.models}][demand.cpu] += part;
    }
  }
  for (const auto& [key, by_cpu] : groups) {
    Group group;
    std::tie(group.gpus, group.gpu_milli, group.models) = key;
    for (const auto& [cpu, part] : by_cpu) {
      group.part += part;
      group.up_to_cpu.emplace_back(cpu, group.part);
    }
    groups_.push_back(std::move(group));
  }
}

double Fragmentation::Of(const NodeRoom& room) const {
  const double total = room.TotalMilli();
  if (total == 0) return 0;
  double fragments = without_gpu_ * total;
  for (const Group& group : groups_) {
    double fit = 0;
    if (room.Allows({.models = group.models})) {
      const auto beyond =
          std::ranges::upper_bound(group.up_to_cpu, room.cpu, {}, &std::pair<std::int32_t, double>::first);
      if (beyond != group.up_to_cpu.begin()) fit = std::prev(beyond)->second;
    }
    int enough = 0;
    std::int32_t too_full = 0;
    for (int gpu = 0; gpu < room.gpus; ++gpu) {
      const std::int32_t left = room.gpu_milli[gpu];
      if (left >= group.gpu_milli) {
        ++enough;
      } else {
        too_full += left;
      }
    }
    if (enough < group.gpus) fit = 0;
    fragments += fit * too_full + (group.part - fit) * total;
  }
  return fragments;
}

}  // namespace tessera::sched
