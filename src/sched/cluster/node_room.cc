#include "sched/cluster/node_room.h"

namespace tessera::sched {

std::int32_t NodeRoom::TotalMilli() const {
  std::int32_t total = 0;
  for (int gpu = 0; gpu < gpus; ++gpu) total += gpu_milli[gpu];
  return total;
}

int NodeRoom::WholeGpus() const {
  int whole = 0;
  for (int gpu = 0; gpu < gpus; ++gpu) whole += gpu_milli[gpu] == kGpuMilli;
  return whole;
}

bool NodeRoom::Fits(const Demand& demand) const {
  if (demand.cpu > cpu || demand.memory > memory) return false;
  if (demand.gpus == 0) return true;
  if (!Allows(demand)) return false;
  int missing = demand.gpus;
  for (int gpu = 0; gpu < gpus && missing > 0; ++gpu) missing -= gpu_milli[gpu] >= demand.gpu_milli;
  return missing == 0;
}

GpuSet NodeRoom::Tightest(const Demand& demand) const {
  GpuSet chosen = 0;
  if (demand.IsPart()) {
    int best = -1;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (gpu_milli[gpu] >= demand.gpu_milli && (best < 0 || gpu_milli[gpu] < gpu_milli[best])) best = gpu;
    }
    return GpuSet{1} << best;
  }
  int missing = demand.gpus;
  for (int gpu = 0; gpu < gpus && missing > 0; ++gpu) {
    if (gpu_milli[gpu] != kGpuMilli) continue;
    chosen |= GpuSet{1} << gpu;
    --missing;
  }
  return chosen;
}

std::uint32_t NodeRoom::KindOf(const Demand& demand) {
  if (demand.gpus == 0) return 0;
  return std::uint32_t{1} << (demand.IsPart() ? 0 : demand.gpus);
}

void NodeRoom::Take(const Demand& demand, GpuSet on) {
  kinds |= KindOf(demand);
  cpu -= demand.cpu;
  memory -= demand.memory;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if ((on >> gpu & 1) != 0) gpu_milli[gpu] = static_cast<std::int16_t>(gpu_milli[gpu] - demand.gpu_milli);
  }
}

void NodeRoom::Give(const Demand& demand, GpuSet on) {
  cpu += demand.cpu;
  memory += demand.memory;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if ((on >> gpu & 1) != 0) gpu_milli[gpu] = static_cast<std::int16_t>(gpu_milli[gpu] + demand.gpu_milli);
  }
}

std::size_t NodeRoomHash::operator()(const NodeRoom& room) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(room.cpu) << 32 | static_cast<std::uint32_t>(room.memory));
  mix(std::uint64_t{room.kinds} << 16 | std::uint64_t{room.gpus} << 8 | room.model);
  for (int gpu = 0; gpu < room.gpus; gpu += 4) {
    std::uint64_t four = 0;
    for (int i = gpu; i < gpu + 4; ++i) four = four << 16 | static_cast<std::uint16_t>(room.gpu_milli[i]);
    mix(four);
  }
  return hash;
}

}  // namespace tessera::sched
