#include "server/gpu/gang_server.h"

#include <sys/types.h>

#include <algorithm>
#include <utility>

#include "server/gpu/gpu_server.h"

namespace tessera::server {

GangServer::GangServer(EventLoop& loop, const sched::ResidencyConfig& config)
    : gangs_(config), timer_(loop, [this] { Look(MonotonicNow()); }), look_(loop, [this] { Look(MonotonicNow()); }) {}

void GangServer::Add(GpuServer& gpu) {
  gpus_.push_back(&gpu);
  gpu.Placement().Heed(*this);
}

bool GangServer::AnyTurns() const {
  return std::ranges::count_if(gpus_, [](GpuServer* gpu) { return gpu->Swaps() && gpu->Residency().TakesTurns(); }) > 1;
}

// Those on several GPUs that a program, or a chain of programs, joins. A gang has the number of its first vGPU.
std::map<VgpuId, sched::GangId> GangServer::Members() const {
  std::map<VgpuId, sched::GangId> gangs;
  std::map<pid_t, sched::GangId> programs;
  std::map<VgpuId, std::uint32_t> gpu_of;
  for (GpuServer* gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      gpu_of[vgpu->id] = gpu->Index();
      gangs[vgpu->id] = vgpu->id;
      for (const Process* process : vgpu->processes) {
        if (process->who.guest) continue;
        const sched::GangId mine = gangs[vgpu->id];
        const sched::GangId theirs = programs.try_emplace(process->pid, mine).first->second;
        const auto [joined, other] = std::minmax(mine, theirs);
        for (auto& [_, gang] : gangs) gang = gang == other ? joined : gang;
        for (auto& [_, gang] : programs) gang = gang == other ? joined : gang;
      }
    }
  }
  std::map<VgpuId, sched::GangId> on_several;
  for (const auto& [vgpu, gang] : gangs) {
    const bool several = std::ranges::any_of(
        gangs, [&](const auto& other) { return other.second == gang && gpu_of[other.first] != gpu_of[vgpu]; });
    if (several) on_several[vgpu] = gang;
  }
  return on_several;
}

void GangServer::Look(Nanos now) {
  if (!decides_ && !AnyTurns()) return;
  const std::map<VgpuId, sched::GangId> members = Members();
  std::vector<sched::GangGpu> all;
  for (GpuServer* gpu : gpus_) {
    sched::GangGpu& its = all.emplace_back();
    if (gpu->Swaps()) its.now = gpu->Residency().Wishes();
    for (const sched::TurnWish& wish : its.now.wishes) {
      const auto gang = members.find(wish.vgpu);
      its.gangs.push_back(gang == members.end() ? sched::kNoGang : gang->second);
    }
  }
  gangs_.Decide(all, now);
  decides_ = false;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    bool changed = false;
    for (VGpu* vgpu : gpus_[i]->VGpus()) {
      const sched::GangTurn turn = gangs_.TurnOf(i, vgpu->id);
      decides_ |= turn != sched::GangTurn::kOpen;
      changed |= std::exchange(vgpu->gang_turn, turn) != turn;
    }
    if (changed && gpus_[i]->Swaps()) gpus_[i]->Residency().MarkDue();
  }
  timer_.Arm(gangs_.NextDeadline());
}

}  // namespace tessera::server
