#include "server/draining/homes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/size.h"
#include "server/checkpoint/obstacles.h"
#include "server/gpu/gpu_choice.h"

namespace tessera::server {
namespace {

sched::Home HomeOf(GpuServer& gpu) {
  const Ledger& ledger = gpu.Memory().Ledger();
  const std::uint64_t memory = ledger.Capacity() - ledger.Reserve();
  const std::uint64_t others = gpu.Measurement().UnmanagedBytes();
  sched::Home home{.type = fmt::format("{} of {}", gpu.Info().name, FormatSize(gpu.Info().memory_total)),
                   .memory = memory,
                   .place = ledger.PlaceForAll(),
                   .resident = memory - std::min(memory, others)};
  home.unusable = WhyNoNewcomers(gpu);
  return home;
}

// Bytes that the process needs on a GPU when it runs there.
std::uint64_t MustStay(const Placement& placement, const Process& process) {
  return std::max(placement.PinnedBytes(process), process.suspension.bytes);
}

sched::Dweller DwellerOf(GpuServer& gpu, const VGpu& vgpu) {
  const sched::Shares& shares = vgpu.spec.compute;
  sched::Dweller dweller{.home = gpu.Index(),
                         .needs = {.owner = vgpu.spec.uid,
                                   .space = vgpu.spec.space,
                                   .claim = {.sms = sched::PartOf(shares.space.sm_pct),
                                             .time = vgpu.removed ? 0 : sched::PartOf(shares.request_pct)},
                                   .memory = vgpu.removed ? 0 : vgpu.spec.memory.request},
                         .held = gpu.Memory().Ledger().Held(vgpu.id)};
  for (const Process* process : vgpu.processes) {
    dweller.needs.resident += MustStay(gpu.Placement(), *process);
    dweller.bytes += process->memory.Current();
  }
  if (gpu.Health().Failed() && !vgpu.processes.empty()) dweller.stays = "its GPU has failed, and its programs with it";
  if (vgpu.removed) dweller.stays = "it was removed, and ends with its programs";
  return dweller;
}

// vGPUs with a program in common get the lowest index of them as their group.
void Group(const std::map<pid_t, std::vector<std::size_t>>& programs, std::vector<sched::Dweller>& dwellers) {
  for (std::size_t i = 0; i < dwellers.size(); ++i) dwellers[i].group = i;
  for (const auto& [_, uses] : programs) {
    for (const std::size_t use : uses) {
      const std::size_t from = dwellers[use].group, to = dwellers[uses.front()].group;
      for (sched::Dweller& dweller : dwellers) {
        if (dweller.group == std::max(from, to)) dweller.group = std::min(from, to);
      }
    }
  }
}

}  // namespace

Homes HomesOf(const VGpuTable::Gpus& gpus, const Suspensions& suspensions, const MoveQueue& queue) {
  Homes all;
  std::map<pid_t, std::vector<std::size_t>> programs;  // the dwellers that each is in
  std::map<pid_t, std::vector<const Process*>> uses;
  for (const auto& gpu : gpus) {
    all.homes.push_back(HomeOf(*gpu));
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        programs[process->pid].push_back(all.dwellers.size());
        uses[process->pid].push_back(process);
      }
      all.dwellers.push_back(DwellerOf(*gpu, *vgpu));
      all.ids.push_back(vgpu->id);
      if (queue.Moves(vgpu->id)) all.dwellers.back().stays = "it is being moved";
    }
  }
  for (const auto& [pid, its] : uses) {
    if (suspensions.Find(pid)) continue;  // it was looked at
    const auto may = MayLeave(pid, its);
    if (may) continue;
    for (const std::size_t index : programs[pid]) {
      if (all.dwellers[index].stays.empty()) all.dwellers[index].stays = may.error().message;
    }
  }
  Group(programs, all.dwellers);
  // What moves has its place on the other GPU, too.
  for (std::size_t i = 0, there = all.ids.size(); i < there; ++i) {
    const auto target = queue.TargetOf(all.ids[i]);
    if (!target || *target == all.dwellers[i].home) continue;
    sched::Dweller coming = all.dwellers[i];
    coming.home = *target;
    coming.group = all.dwellers.size();
    all.dwellers.push_back(std::move(coming));
    all.ids.push_back(all.ids[i]);
  }
  return all;
}

std::vector<std::vector<VGpuMove>> Homes::MovesOf(const sched::Rehoming& rehoming) const {
  std::vector<std::vector<VGpuMove>> moves;
  for (const auto& together : rehoming.moves) {
    std::vector<VGpuMove>& group = moves.emplace_back();
    for (const auto& [dweller, to] : together) group.push_back({ids[dweller], static_cast<std::uint32_t>(to)});
    for (std::size_t i = 0; i < dwellers.size(); ++i) {
      const bool stays = dwellers[i].group == dwellers[together.front().dweller].group &&
                         std::ranges::find(group, ids[i], &VGpuMove::vgpu) == group.end();
      if (stays) group.push_back({ids[i], static_cast<std::uint32_t>(dwellers[i].home)});
    }
  }
  return moves;
}

}  // namespace tessera::server
