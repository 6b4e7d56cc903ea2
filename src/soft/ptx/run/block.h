// A block of threads and the grid that it belongs to, while they run.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"
#include "soft/ptx/run/warp.h"

namespace tessera::soft::ptx {

// State that the blocks of a launch share.
struct Grid {
  const Program& program;
  const Kernel& kernel;
  const Launch& launch;
  AddressSpace& memory;
  Hooks& hooks;
  std::vector<std::byte> parameters;  // aligned as device memory is
  std::vector<Range> ranges;          // last hit of each memory instruction
  std::optional<Fault> fault;
  std::uint64_t unreported = 0;  // instructions run since the last Progress

  // cg::grid_group::sync() counts arrivals here: {size, barrier}. Its address is in %envreg1 and 2.
  alignas(8) std::array<std::uint32_t, 2> sync = {};

  // Answers from the address space, or with the grid's own words.
  Range Find(std::uint64_t address);
  // Charges instructions; false if the kernel has to end.
  bool Report(std::uint64_t instructions, bool finished);
};

struct Barrier {
  static constexpr std::uint32_t kWholeBlock = 0;
  std::uint32_t expected = kWholeBlock;  // threads
  std::uint32_t waiting = 0;             // lanes that wait
  std::uint32_t arrived = 0;             // by bar.arrive
  std::uint32_t votes = 0;               // bar.red: lanes whose predicate was true
};

struct Block {
  explicit Block(Grid& the_grid) : grid(&the_grid) {}

  void Start(std::uint64_t linear_index);

  enum Status { kRunning, kFinished, kFaulted };
  // Gives every warp its turn. `spun` says that most of it went into waiting loops.
  Status RunRound(bool& spun);

  void WaitAt(Warp& warp, unsigned barrier, std::uint32_t expected, const Instruction* reduction, LaneMask votes);
  void ArriveAt(unsigned barrier, std::uint32_t expected, std::uint32_t lanes);
  void LanesExited(unsigned count);

  Grid* grid;
  Dim3 index;
  std::uint64_t linear_index = 0;
  std::uint32_t live = 0;  // threads
  std::vector<Warp> warps;
  std::vector<std::byte> shared;
  std::array<Barrier, 16> barriers = {};

 private:
  bool Complete(unsigned barrier) const;
  void Release(unsigned barrier);
};

}  // namespace tessera::soft::ptx
