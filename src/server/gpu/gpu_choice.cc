#include "server/gpu/gpu_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
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
  room.unusable = WhyNoNewcomers(gpu);
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

std::string WhyNoNewcomers(GpuServer& gpu) {
  const auto takes = gpu.Health().TakesNewcomers();
  if (takes) return "";
  return takes.error().code == EBUSY ? "it drains" : takes.error().message;
}

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

Result<std::vector<std::uint32_t>> CandidatesFor(const VGpuRequest& request, const VGpuSpec& spec, const Gpus& gpus,
                                                 const SpaceTable* spaces) {
  auto all = GpusNamed(request.gpu, gpus);
  if (!all) return all;
  const Space* space = request.space && spaces ? spaces->Find(*request.space) : nullptr;
  if (space && space->Used() && (!request.gpu || request.gpu == "auto")) all = std::vector{space->Who().gpu};
  VGpuSpec asked = spec;
  GpuServer& any = *gpus[all->front()];
  // Place refuses a figure that cannot be read, and says why.
  if (!ApplyFigures(request, any.Info().memory_total, any.Swaps(), asked)) return all;
  auto by_room = OrderByRoom(asked, std::move(*all), gpus);
  if (!by_room || asked.gang.empty()) return by_room;
  const auto has_one = [&](std::uint32_t gpu) {
    return std::ranges::any_of(gpus[gpu]->VGpus(), [&](const VGpu* vgpu) {
      return !vgpu->removed && vgpu->spec.uid == asked.uid && vgpu->spec.gang == asked.gang;
    });
  };
  std::vector<std::uint32_t> ordered;
  std::ranges::copy_if(*by_room, std::back_inserter(ordered), std::not_fn(has_one));
  std::ranges::copy_if(*by_room, std::back_inserter(ordered), has_one);
  return ordered;
}

}  // namespace tessera::server
