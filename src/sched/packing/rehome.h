// Rehoming: which vGPUs go from one GPU to others, and where to, so that it is empty or has room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sched/packing/placement.h"

namespace tessera::sched {

// A GPU, whatever is on it now.
struct Home {
  std::string type;            // a vGPU can only go to a GPU of the same one
  std::string unusable;        // why it takes no vGPU, in words; empty: it does
  std::uint64_t memory = 0;    // bytes that can be promised
  std::uint64_t place = 0;     // bytes for all that its vGPUs were promised or hold, host memory included
  std::uint64_t resident = 0;  // bytes for what must stay on the GPU
};

// A vGPU, and what it takes of the GPU that it is on.
struct Dweller {
  std::size_t home = 0;     // index of the GPU
  Newcomer needs;           // its promises, and what of it must stay on the GPU
  std::uint64_t held = 0;   // bytes that its programs hold, wherever they lie
  std::uint64_t bytes = 0;  // that move with it: what the move costs
  std::string stays;        // why it cannot move, in words; empty: it can
  std::size_t group = 0;    // vGPUs of one group have programs in common: what moves of it moves in one go, and no two
                            // of it to the same GPU
};

struct Rehoming {
  struct Move {
    std::size_t dweller = 0;
    std::size_t to = 0;  // index of the GPU
    friend bool operator==(const Move&, const Move&) = default;
  };
  struct Stay {
    std::size_t dweller = 0;
    std::string why;
    friend bool operator==(const Stay&, const Stay&) = default;
  };
  std::vector<std::vector<Move>> moves;  // each is of one group, in one go; in any order
  std::vector<Stay> stays;               // those that should go and cannot
  std::uint64_t bytes = 0;               // that move
  std::size_t room_on = 0;               // MakeRoom: the GPU that takes the newcomer then
  friend bool operator==(const Rehoming&, const Rehoming&) = default;
};

// Where the vGPUs of `gpu` go, which is not usable any more. What was promised finds its place on the fullest GPU that
// has room for it (sched::Place), and what was promised nothing on the one with most place left. vGPUs in spaces stay,
// and so do those of a group of which one has to. Several orders are tried, and the one that leaves the fewest is
// taken; with more than a few vGPUs a better one may exist.
Rehoming EmptyGpu(std::size_t gpu, const std::vector<Home>& homes, const std::vector<Dweller>& dwellers);

// The moves of the fewest bytes, then of the fewest vGPUs, after which a GPU has room for the newcomer; none where one
// has it already. All of them are from that GPU: moves in chains are not looked for. Of one GPU at most kMostTrials
// sets of vGPUs are tried, the cheapest first. The newcomer is in no space. ENOSPC: there are no such moves; says why
// of each GPU as it is now.
Result<Rehoming> MakeRoom(const Newcomer& newcomer, const std::vector<Home>& homes,
                          const std::vector<Dweller>& dwellers);

inline constexpr int kMostTrials = 2000;

}  // namespace tessera::sched
