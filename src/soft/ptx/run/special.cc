#include "soft/ptx/run/special.h"

#include <array>

#include "soft/ptx/run/block.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// One value for the whole warp.
using Uniform = std::uint64_t (*)(const Warp&);
// One for each lane.
using PerLane = Slot (*)(const Warp&, unsigned lane);

template <Uniform value>
void ReadUniform(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot bits = value(warp);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = bits; });
}

template <PerLane value>
void ReadPerLane(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  ForLanes(lanes, [&](unsigned lane) { d[lane] = value(warp, lane); });
}

const Grid& GridOf(const Warp& warp) { return *warp.block->grid; }
std::uint32_t Component(const Dim3& dimensions, unsigned which) {
  return which == 0 ? dimensions.x : which == 1 ? dimensions.y : dimensions.z;
}

template <unsigned which>
constexpr std::array<Instruction::Handler, 4> kVectors = {
    &ReadPerLane<[](const Warp& warp, unsigned lane) { return warp.tid[which][lane]; }>,
    &ReadUniform<[](const Warp& warp) { return std::uint64_t{Component(GridOf(warp).launch.block, which)}; }>,
    &ReadUniform<[](const Warp& warp) { return std::uint64_t{Component(warp.block->index, which)}; }>,
    &ReadUniform<[](const Warp& warp) { return std::uint64_t{Component(GridOf(warp).launch.grid, which)}; }>,
};
constexpr std::array<std::string_view, 4> kVectorNames = {"%tid", "%ntid", "%ctaid", "%nctaid"};

struct Row {
  std::string_view name;
  Instruction::Handler handler;
};

// A clock of 1 GHz, so that clocks and times agree.
std::uint64_t Now(const Warp& warp) { return static_cast<std::uint64_t>(GridOf(warp).hooks.GlobalTimer()); }

std::uint64_t SyncWords(const Warp& warp) {
  const Grid& grid = GridOf(warp);
  return grid.launch.cooperative ? reinterpret_cast<std::uint64_t>(grid.sync.data()) : 0;
}

constexpr Row kRows[] = {
    {"%laneid", &ReadPerLane<[](const Warp&, unsigned lane) { return Slot{lane}; }>},
    {"%lanemask_eq", &ReadPerLane<[](const Warp&, unsigned lane) { return Slot{1} << lane; }>},
    {"%lanemask_lt", &ReadPerLane<[](const Warp&, unsigned lane) { return (Slot{1} << lane) - 1; }>},
    {"%lanemask_le", &ReadPerLane<[](const Warp&, unsigned lane) { return (Slot{2} << lane) - 1; }>},
    {"%lanemask_gt",
     &ReadPerLane<[](const Warp&, unsigned lane) { return Slot{kAllLanes} & ~((Slot{2} << lane) - 1); }>},
    {"%lanemask_ge",
     &ReadPerLane<[](const Warp&, unsigned lane) { return Slot{kAllLanes} & ~((Slot{1} << lane) - 1); }>},
    {"%warpid", &ReadUniform<[](const Warp& warp) { return std::uint64_t{warp.index}; }>},
    {"%nwarpid", &ReadUniform<[](const Warp&) { return std::uint64_t{64}; }>},
    {"%smid", &ReadUniform<[](const Warp& warp) { return warp.block->linear_index % GridOf(warp).launch.sm_count; }>},
    {"%nsmid", &ReadUniform<[](const Warp& warp) { return std::uint64_t{GridOf(warp).launch.sm_count}; }>},
    {"%gridid", &ReadUniform<[](const Warp& warp) { return GridOf(warp).launch.grid_id; }>},
    {"%clock", &ReadUniform<&Now>},
    {"%clock64", &ReadUniform<&Now>},
    {"%clock_hi", &ReadUniform<[](const Warp& warp) { return (Now(warp) >> 32); }>},
    {"%globaltimer", &ReadUniform<&Now>},
    {"%globaltimer_lo", &ReadUniform<&Now>},
    {"%globaltimer_hi", &ReadUniform<[](const Warp& warp) { return (Now(warp) >> 32); }>},
    {"%dynamic_smem_size",
     &ReadUniform<[](const Warp& warp) { return std::uint64_t{GridOf(warp).launch.dynamic_shared_bytes}; }>},
    {"%total_smem_size", &ReadUniform<[](const Warp& warp) { return std::uint64_t{warp.block->shared.size()}; }>},
    // The address of the words that a grid barrier counts in, high half first, as cooperative groups expect it.
    {"%envreg1", &ReadUniform<[](const Warp& warp) { return (SyncWords(warp) >> 32); }>},
    {"%envreg2", &ReadUniform<&SyncWords>},
};

}  // namespace

Instruction::Handler FindSpecial(std::string_view name, std::string_view component) {
  if (component.empty()) {
    for (const Row& row : kRows) {
      if (row.name == name) return row.handler;
    }
    return nullptr;
  }
  for (std::size_t i = 0; i < kVectorNames.size(); ++i) {
    if (kVectorNames[i] != name) continue;
    if (component == "x") return kVectors<0>[i];
    if (component == "y") return kVectors<1>[i];
    if (component == "z") return kVectors<2>[i];
  }
  return nullptr;
}

void FrameAddress(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot address = warp.local_base + static_cast<std::uint64_t>(in.immediate);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = address; });
}

void DynamicSharedAddress(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot address = GridOf(warp).kernel.static_shared_bytes + static_cast<std::uint64_t>(in.immediate);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = address; });
}

}  // namespace tessera::soft::ptx
