#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/cluster/demand.h"

namespace tessera::sched {

// What parts of GPUs are worth to a fleet, if it is known how often each demand comes. A part of 810 may be worth a
// whole GPU, because nobody can use the rest. The prices are those of the cutting stock problem: all demands are cut
// from as few GPUs as possible.
class GpuPrices {
 public:
  // Of pods that come as often as they are named here. Takes a millisecond for dozens of sizes.
  explicit GpuPrices(const std::vector<Demand>& pods);

  // What is left of a GPU is worth as much as the best that can be cut from it. In GPUs: 0 for nothing, 1 for a whole
  // one. `milli`: [0, kGpuMilli].
  double OfRoom(std::int32_t milli) const { return of_room_[static_cast<std::size_t>(milli)]; }
  // In GPUs. For whole ones, their number; 0 for a part that was not among those pods.
  double OfDemand(const Demand& demand) const;
  // How many GPUs all those pods need at least.
  double gpus() const { return gpus_; }

 private:
  std::array<double, kGpuMilli + 1> of_demand_{};
  std::array<double, kGpuMilli + 1> of_room_{};
  double gpus_ = 0;
};

}  // namespace tessera::sched
