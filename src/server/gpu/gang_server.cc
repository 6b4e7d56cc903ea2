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

// The vGPUs of all GPUs, with their programs. A guest's pid may be on GPUs whose vGPUs have nothing to do with each
// other: an operator put it there.
std::vector<sched::GangCandidate> GangServer::Candidates() const {
  std::vector<sched::GangCandidate> candidates;
  for (GpuServer* gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      sched::GangCandidate& each = candidates.emplace_back(sched::GangCandidate{.vgpu = vgpu->id,
                                                                                .gpu = gpu->Index(),
                                                                                .owner = vgpu->spec.uid,
                                                                                .gang = vgpu->spec.gang,
                                                                                .in_use = !vgpu->processes.empty()});
      for (const Process* process : vgpu->processes) {
        if (!process->who.guest) each.programs.push_back({.number = process->pid, .joined = process->who.joined});
      }
    }
  }
  return candidates;
}

void GangServer::Look(Nanos now) {
  if (std::exchange(members_due_, false)) {
    const auto candidates = Candidates();
    users_ = sched::FindGangs(candidates, sched::GangBond::kUse);
    members_ = sched::FindGangs(candidates, sched::GangBond::kJoin);
    memory_due_ = true;
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
std::optional<sched::GangPart> PartOf(const VGpu& vgpu, TimeControl& time, const sched::SteeringConfig& config) {
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
