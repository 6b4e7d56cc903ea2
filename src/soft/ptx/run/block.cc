#include "soft/ptx/run/block.h"

#include <algorithm>
#include <bit>

namespace tessera::soft::ptx {

Range Grid::Find(std::uint64_t address) {
  const auto begin = reinterpret_cast<std::uint64_t>(sync.data());
  const std::uint64_t end = begin + sizeof(sync);
  return address >= begin && address < end ? Range{begin, end} : memory.Find(address);
}

bool Grid::Report(std::uint64_t instructions, bool finished) {
  unreported += instructions;
  if (unreported < kProgressInterval && !finished) return !fault;
  const bool go_on = hooks.Progress(unreported);
  unreported = 0;
  std::ranges::fill(ranges, Range{});
  if (!go_on && !fault) fault = Fault{Fault::kAborted, "kernel '" + kernel.name + "' was aborted"};
  return !fault;
}

void Block::Start(std::uint64_t its_linear_index) {
  const Dim3& size = grid->launch.grid;
  const auto threads = static_cast<std::uint32_t>(grid->launch.block.Count());
  linear_index = its_linear_index;
  index = {static_cast<std::uint32_t>(linear_index % size.x),
           static_cast<std::uint32_t>(linear_index / size.x % size.y),
           static_cast<std::uint32_t>(linear_index / size.x / size.y)};
  live = threads;
  barriers.fill({});
  shared.resize(grid->kernel.static_shared_bytes + grid->launch.dynamic_shared_bytes);
  warps.resize((threads + kWarpSize - 1) / kWarpSize);
  for (unsigned i = 0; i < warps.size(); ++i) warps[i].Start(*this, i, threads - i * kWarpSize);
}

Block::Status Block::RunRound(bool& spun) {
  bool progress = false;
  std::int64_t waited = 0;
  std::uint64_t worked = 0;
  for (Warp& warp : warps) {
    if (warp.Done() || !warp.Ready()) continue;
    progress = true;
    const std::uint64_t instructions = warp.Run(kProgressInterval);
    worked += instructions;
    waited += warp.budget <= 0 && !warp.Done() ? warp.penalty : 0;
    if (!grid->Report(instructions, false)) return kFaulted;
  }
  spun = waited > static_cast<std::int64_t>(worked);
  if (live == 0) return kFinished;
  if (progress) return kRunning;
  for (Warp& warp : warps) {
    if (warp.ForceSync()) return kRunning;
  }
  grid->fault = Fault{Fault::kDeadlock, "kernel '" + grid->kernel.name + "': the threads of block " +
                                            std::to_string(linear_index) + " wait at barriers that no other reaches"};
  return kFaulted;
}

void Block::WaitAt(Warp& warp, unsigned id, std::uint32_t expected, const Instruction* reduction, LaneMask votes) {
  Path& path = warp.paths[warp.running];
  path.state = Path::kAtBarrier;
  path.barrier = id;
  path.reduction = reduction;
  path.frame.pc = warp.pc;
  Barrier& barrier = barriers[id];
  barrier.expected = expected;
  barrier.waiting += static_cast<std::uint32_t>(std::popcount(path.lanes));
  barrier.votes += static_cast<std::uint32_t>(std::popcount(votes));
  if (Complete(id)) Release(id);
}

void Block::ArriveAt(unsigned id, std::uint32_t expected, std::uint32_t lanes) {
  barriers[id].expected = expected;
  barriers[id].arrived += lanes;
  if (Complete(id)) Release(id);
}

void Block::LanesExited(unsigned count) {
  live -= count;
  for (unsigned id = 0; id < barriers.size(); ++id) {
    if (barriers[id].waiting > 0 && Complete(id)) Release(id);
  }
}

bool Block::Complete(unsigned id) const {
  const Barrier& barrier = barriers[id];
  if (barrier.expected == Barrier::kWholeBlock) return barrier.waiting == live;
  // A count is in whole warps: threads that a warp does not have, or no longer has, come with the rest of it.
  std::uint32_t threads = barrier.arrived;
  for (const Warp& warp : warps) {
    LaneMask waiting = 0;
    for (const Path& path : warp.paths) {
      if (path.state == Path::kAtBarrier && path.barrier == id) waiting |= path.lanes;
    }
    if (waiting != 0) threads += waiting == warp.live ? kWarpSize : static_cast<std::uint32_t>(std::popcount(waiting));
  }
  return threads >= barrier.expected;
}

void Block::Release(unsigned id) {
  const Barrier barrier = barriers[id];
  barriers[id] = {};
  for (Warp& warp : warps) {
    for (Path& path : warp.paths) {
      if (path.state != Path::kAtBarrier || path.barrier != id) continue;
      path.state = Path::kReady;
      if (path.reduction != nullptr) warp.CompleteReduction(path, barrier.votes, barrier.waiting);
      path.reduction = nullptr;
    }
  }
}

}  // namespace tessera::soft::ptx
