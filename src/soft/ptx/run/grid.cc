// Run: starts the blocks of a grid and takes turns among those that are resident.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "soft/ptx/run/block.h"

namespace tessera::soft::ptx {
namespace {

// Blocks that are under way at once. One after the other would do for kernels that keep to the programming model, but
// real ones also wait for blocks that are beside them on real hardware.
constexpr std::size_t kResidentBlocks = 32;
// Rounds that a block gets before another one starts; an ordinary block is done by then and its memory warm for the
// next one.
constexpr int kRoundsPerTurn = 64;

constexpr std::uint32_t kMaxThreadsPerBlock = 1024;
constexpr std::uint32_t kMaxSharedBytes = 256 << 10;

std::string CheckLaunch(const Kernel& kernel, const Launch& launch) {
  const std::uint64_t threads = launch.block.Count();
  const std::uint32_t most = std::min(kernel.max_threads, kMaxThreadsPerBlock);
  if (launch.grid.Count() == 0 || threads == 0) return "a grid or block dimension is zero";
  if (launch.block.x > most || launch.block.y > most || launch.block.z > most || threads > most) {
    return "a block may have " + std::to_string(most) + " threads";
  }
  if (launch.parameters.size() < kernel.parameter_bytes) {
    return std::to_string(launch.parameters.size()) + " bytes of parameters, " +
           std::to_string(kernel.parameter_bytes) + " are needed";
  }
  if (std::uint64_t{kernel.static_shared_bytes} + launch.dynamic_shared_bytes > kMaxSharedBytes) {
    return "a block may have " + std::to_string(kMaxSharedBytes) + " bytes of shared memory";
  }
  return {};
}

// A block's turn: until it is done, has used its rounds, or does nothing but wait for something outside of it.
Block::Status TakeTurn(Block& block, int rounds) {
  Block::Status status = Block::kRunning;
  bool spun = false;
  while (status == Block::kRunning && rounds-- > 0 && !spun) status = block.RunRound(spun);
  return status;
}

}  // namespace

std::expected<void, Fault> Run(const Module& module, const Kernel& kernel, const Launch& launch, AddressSpace& memory,
                               Hooks& hooks) {
  if (std::string why = CheckLaunch(kernel, launch); !why.empty()) {
    return std::unexpected(Fault{Fault::kInvalidLaunch, "kernel '" + kernel.name + "': " + why});
  }
  const Program& program = module.program();
  Grid grid = {.program = program, .kernel = kernel, .launch = launch, .memory = memory, .hooks = hooks};
  grid.parameters.assign(launch.parameters.begin(), launch.parameters.begin() + kernel.parameter_bytes);
  grid.ranges.resize(program.ranges);

  const std::uint64_t blocks = launch.grid.Count();
  const std::uint64_t most_resident = launch.cooperative ? blocks : kResidentBlocks;
  std::vector<std::unique_ptr<Block>> resident;  // in turn
  std::unique_ptr<Block> spare;                  // of one that is done: the next one takes over its memory
  std::uint64_t started = 0;
  std::size_t turn = 0;
  while (started < blocks || !resident.empty()) {
    if (started < blocks && resident.size() < most_resident) {
      resident.push_back(spare ? std::move(spare) : std::make_unique<Block>(grid));
      resident.back()->Start(started++);
      turn = resident.size() - 1;
    }
    turn %= resident.size();
    const Block::Status status = TakeTurn(*resident[turn], kRoundsPerTurn);
    if (status == Block::kFaulted) break;
    if (status == Block::kFinished) {
      spare = std::move(resident[turn]);
      resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(turn));
    } else {
      ++turn;
    }
  }
  grid.Report(0, true);
  if (grid.fault) return std::unexpected(*std::move(grid.fault));
  return {};
}

}  // namespace tessera::soft::ptx
