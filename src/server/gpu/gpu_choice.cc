#include "server/gpu/gpu_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

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

Result<std::vector<std::uint32_t>> GpusNamed(const std::optional<std::string>& gpu, const Gpus& gpus) {
  std::vector<std::uint32_t> all;
  for (const auto& server : gpus) all.push_back(server->Index());
  if (!gpu || *gpu == "auto") {
    std::ranges::sort(all, std::ranges::greater(), [&gpus](std::uint32_t index) {
      return std::pair(gpus[index]->Memory().Ledger().Spare(), -static_cast<std::int64_t>(index));
    });
    return all;
  }
  if (auto uuid = ParseUuid(*gpu)) {
    for (const auto& server : gpus) {
      if (server->Info().uuid == *uuid) return std::vector{server->Index()};
    }
  } else if (uuid.error().code == ENOTSUP) {
    return std::unexpected(uuid.error());
  }
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(gpu->data(), gpu->data() + gpu->size(), index);
  if (error == std::errc() && end == gpu->data() + gpu->size() && index < gpus.size()) return std::vector{index};
  return Fail(ENOENT, fmt::format("there is no GPU {}", *gpu),
              "tessera gpus lists them; \"auto\" takes the one with most room");
}

Result<std::vector<std::uint32_t>> OrderByRoom(const VGpuSpec& newcomer, std::vector<std::uint32_t> candidates,
                                               const Gpus& gpus) {
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
