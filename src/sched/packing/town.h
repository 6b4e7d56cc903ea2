#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/packing/placement.h"
#include "sched/packing/rehome.h"

namespace tessera::sched {

// What a vGPU takes of the place for memory, wherever that is.
std::uint64_t ClaimOf(const Dweller& dweller);

// The GPUs, and what is on each while vGPUs are moved in thought.
class Town {
 public:
  // `homes` outlive it.
  Town(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers);

  void Add(const Dweller& dweller, std::size_t home);
  // One that is in no space.
  void Remove(const Dweller& dweller, std::size_t home);

  std::uint64_t PlaceLeft(std::size_t home) const;
  // The rooms of all GPUs for one that was promised so much memory, and claims so much of their places.
  std::vector<GpuRoom> RoomsFor(std::uint64_t promise, std::uint64_t claim) const;
  GpuRoom RoomFor(std::uint64_t promise, std::uint64_t claim, std::size_t home) const;

 private:
  struct Used {
    std::vector<Space> spaces;
    Part alone = 0;
    std::uint64_t promised = 0, claimed = 0, resident = 0;
  };
  const std::vector<Home>& homes_;
  std::vector<Used> used_;
};

}  // namespace tessera::sched
