#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sched/cluster/demand.h"

namespace tessera::sched {

constexpr int kMostGpus = 16;  // of a node

// GPUs of one node, a bit each.
using GpuSet = std::uint32_t;

// What is left of a node of a fleet.
struct NodeRoom {
  std::int32_t cpu = 0;                             // thousandths of a processor
  std::int32_t memory = 0;                          // MiB of the host's memory
  std::uint8_t gpus = 0;                            // how many the node has, at most kMostGpus
  std::uint8_t model = 0;                           // their type's number, below kMostGpuModels
  std::array<std::int16_t, kMostGpus> gpu_milli{};  // of each, [0, kGpuMilli]
  std::uint32_t kinds = 0;                          // KindOf each pod with GPUs that runs there

  bool operator==(const NodeRoom&) const = default;

  std::int32_t TotalMilli() const;
  int WholeGpus() const;  // that nobody uses
  bool Allows(const Demand& demand) const { return demand.models == 0 || (demand.models >> model & 1) != 0; }
  bool Fits(const Demand& demand) const;

  // The GPU that has the least left of those with room for the part of a GPU; whole GPUs: the first ones. The demand
  // fits.
  GpuSet Tightest(const Demand& demand) const;
  // A bit for pods with parts of GPUs, and one for each number of whole GPUs. 0: it asks for none.
  static std::uint32_t KindOf(const Demand& demand);

  // The demand on these GPUs. It must fit there.
  void Take(const Demand& demand, GpuSet on);
  // The opposite: what was taken is given back. `kinds` stays.
  void Give(const Demand& demand, GpuSet on);
};

struct NodeRoomHash {
  std::size_t operator()(const NodeRoom& room) const;
};

}  // namespace tessera::sched
