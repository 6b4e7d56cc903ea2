#include "server/gpu/gpu_choice.h"

#include <algorithm>

#include "sched/packing/placement.h"

namespace tessera::server {
namespace {

sched::Rectangle ClaimOf(const sched::Shares& shares) {
  return {.sms = sched::PartOf(shares.space.sm_pct), .time = sched::PartOf(shares.request_pct)};
}

sched::Space& SpaceNamed(std::vector<sched::Space>& spaces, const VGpuSpec& spec) {
  const auto found = std::ranges::find_if(
      spaces, [&](const sched::Space& each) { return each.owner == spec.uid && each.name == spec.space; });
  return found != spaces.end() ? *found : spaces.emplace_back(sched::Space{.owner = spec.uid, .name = spec.space});
}

sched::GpuRoom RoomOf(GpuServer& gpu) {
  sched::GpuRoom room{.resident_left = UINT64_MAX};
  if (auto well = gpu.Health().Check(); !well) room.unusable = well.error().message;
  const Ledger& ledger = gpu.Memory().Ledger();
  room.memory_left = ledger.Capacity() - std::min(ledger.Capacity(), ledger.Promised());
  for (const VGpu* vgpu : gpu.VGpus()) {
    if (vgpu->removed) continue;
    if (vgpu->spec.space.empty()) {
      room.alone += sched::PartOf(vgpu->spec.compute.request_pct);
    } else {
      SpaceNamed(room.spaces, vgpu->spec).members.push_back(ClaimOf(vgpu->spec.compute));
    }
  }
  return room;
}

}  // namespace

Result<std::vector<std::uint32_t>> OrderByRoom(const VGpuSpec& newcomer, std::vector<std::uint32_t> candidates,
                                               const std::vector<std::unique_ptr<GpuServer>>& gpus) {
  if (newcomer.compute.request_pct <= 0 && newcomer.memory.request == 0) return candidates;
  std::vector<sched::GpuRoom> rooms;
  for (const std::uint32_t gpu : candidates) rooms.push_back(RoomOf(*gpus[gpu]));
  sched::Newcomer asks{.owner = newcomer.uid,
                       .space = newcomer.space,
                       .claim = ClaimOf(newcomer.compute),
                       .memory = newcomer.memory.request};
  std::vector<std::uint32_t> ordered;
  std::vector<sched::GpuRoom> left = rooms;
  for (auto next = sched::Place(asks, left); next; next = sched::Place(asks, left)) {
    ordered.push_back(candidates[*next]);
    left[*next].unusable = "it was tried";
  }
  if (!ordered.empty()) return ordered;
  asks.memory = 0;
  if (auto without = sched::Place(asks, rooms); !without) return std::unexpected(without.error());
  return candidates;  // the ledger says what is missing
}

}  // namespace tessera::server
