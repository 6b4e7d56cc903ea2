#include "server/gpu/gang_server.h"

#include <sys/types.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/gpu/gpu_server.h"

namespace tessera::server {

GangServer::GangServer(EventLoop& loop, const Config& config)
    : config_(config),
      gangs_(config.residency),
      timer_(loop,
             [this] {
               memory_due_ = true;
               Look(MonotonicNow());
             }),
      look_(loop, [this] { Look(MonotonicNow()); }) {}

void GangServer::Add(GpuServer& gpu) {
  gpus_.push_back(&gpu);
  standing_.emplace_back();
  gpu.Placement().Heed(*this);
}

void GangServer::MarkDue() {
  memory_due_ = true;
  look_.MarkDue();
}

void GangServer::MarkTimeDue() {
  if (!members_.empty()) look_.MarkDue();
}

void GangServer::MembersChanged() {
  members_due_ = true;
  if (gpus_.size() > 1) look_.MarkDue();
}

bool GangServer::AnyTurns() const {
  return std::ranges::count_if(gpus_, [](GpuServer* gpu) { return gpu->Swaps() && gpu->Residency().TakesTurns(); }) > 1;
}

// A gang has the number of its first vGPU.
GangServer::Members GangServer::FindMembers(Bond bond) const {
  Members gangs;
  std::map<VgpuId, std::uint32_t> gpu_of;
  for (GpuServer* gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      gpu_of[vgpu->id] = gpu->Index();
      gangs[vgpu->id] = vgpu->id;
    }
  }
  const auto unite = [&gangs](VgpuId one, VgpuId another) {
    const auto [joined, other] = std::minmax(gangs.at(one), gangs.at(another));
    for (auto& [_, gang] : gangs) gang = gang == other ? joined : gang;
  };
  std::map<pid_t, VgpuId> programs;
  for (GpuServer* gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        if (process->who.guest) continue;
        unite(programs.try_emplace(process->pid, vgpu->id).first->second, vgpu->id);
        if (bond == Bond::kUse) continue;
        for (const VgpuId id : process->who.joined) {
          if (gangs.contains(id)) unite(id, vgpu->id);
        }
      }
    }
  }
  Members on_several;
  for (const auto& [vgpu, gang] : gangs) {
    const bool several = std::ranges::any_of(
        gangs, [&](const auto& other) { return other.second == gang && gpu_of[other.first] != gpu_of[vgpu]; });
    if (several) on_several[vgpu] = gang;
  }
  return on_several;
}

void GangServer::Look(Nanos now) {
  if (std::exchange(members_due_, false)) {
    users_ = FindMembers(Bond::kUse);
    members_ = FindMembers(Bond::kJoin);
  }
  if (std::exchange(memory_due_, false)) LookAtMemory(now);
  LookAtTime(now);
  timer_.Arm(std::min(decides_ ? gangs_.NextDeadline() : kNever, members_.empty() ? kNever : time_.NextDeadline()));
}

void GangServer::LookAtMemory(Nanos now) {
  if (!decides_ && !AnyTurns()) return;
  std::vector<sched::GangGpu> all;
  for (GpuServer* gpu : gpus_) {
    sched::GangGpu& its = all.emplace_back();
    if (gpu->Swaps()) its.now = gpu->Residency().Wishes();
    for (const sched::TurnWish& wish : its.now.wishes) {
      const auto gang = users_.find(wish.vgpu);
      its.gangs.push_back(gang == users_.end() ? sched::kNoGang : gang->second);
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
}

namespace {

// The vGPUs of a space run at once, so they are one job on their GPU. A gang has the number of a vGPU.
sched::GangId GangOfSpace(std::uint32_t gpu, std::uint32_t space) {
  return std::uint64_t{1} << 63 | std::uint64_t{gpu} << 32 | space;
}

// The vGPU as the order of gangs sees it, in no gang; nothing where it cannot be made to stand. By gates nobody can be
// stopped in the middle of a kernel, which waits for its peers on other GPUs.
std::optional<sched::GangPart> PartOf(const VGpu& vgpu, const TimeControl& time, const sched::SteeringConfig& config) {
  if (vgpu.removed || !FreezesChannels(time.Ways().Present()) || config.fixed_slices) return {};
  const auto& [standing, why, since] = vgpu.standing.Present();
  const sched::Shares shares = time.Goals().SharesOf(vgpu);
  const bool patient = !shares.strict && (shares.patience > 0 || config.patience > 0);
  return sched::GangPart{.vgpu = vgpu.id,
                         .weight = shares.weight,
                         .priority = shares.priority,
                         .strict = !patient && config.min_share_pct == 0,
                         .active = standing != Standing::kIdle,
                         .at_limit = standing == Standing::kWaiting && why == WaitReason::kLimit};
}

}  // namespace

void GangServer::LookAtTime(Nanos now) {
  std::vector<std::set<VgpuId>> standing(gpus_.size());
  if (!members_.empty()) {
    std::vector<std::vector<sched::GangPart>> parts(gpus_.size());
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      for (const VGpu* vgpu : gpus_[i]->VGpus()) {
        auto part = PartOf(*vgpu, gpus_[i]->Time(), config_.steering);
        if (!part) continue;
        const auto gang = members_.find(vgpu->id);
        if (const std::uint32_t space = vgpu->spec.compute.space.number; space != 0) {
          part->gang = GangOfSpace(gpus_[i]->Index(), space);
        } else if (gang != members_.end()) {
          part->gang = gang->second;
        }
        parts[i].push_back(*part);
      }
    }
    time_.Decide(parts, now);
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      for (const sched::GangPart& part : parts[i]) {
        if (time_.Standing().contains(part.vgpu)) standing[i].insert(part.vgpu);
      }
    }
  }
  if (standing != standing_) Stand(standing, now);
}

// First those that must stand leave all GPUs, then the others go.
void GangServer::Stand(const std::vector<std::set<VgpuId>>& standing, Nanos now) {
  const auto before = std::exchange(standing_, standing);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    std::set<VgpuId> both = before[i];
    both.insert(standing[i].begin(), standing[i].end());
    if (both != before[i]) gpus_[i]->Time().StandForGangs(std::move(both), now);
  }
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (before[i] != standing[i]) gpus_[i]->Time().StandForGangs(standing[i], now);
  }
}

}  // namespace tessera::server
