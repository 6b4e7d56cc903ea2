#include "server/draining/drains.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/draining/homes.h"
#include "server/record/events.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// For people.
std::string Summary(const MovePlan& plan) {
  std::size_t moving = 0;
  for (const auto& together : plan.moves) moving += together.size();
  std::string text = fmt::format("{} vGPU{} to go to other GPUs", moving, moving == 1 ? " is" : "s are");
  for (const MovePlan::Stay& stay : plan.stays) text += fmt::format("; vGPU {} stays: {}", stay.name, stay.why);
  return text;
}

}  // namespace

Drains::Drains(VGpuTable& table, const VGpuTable::Gpus& gpus, const Suspensions& suspensions, MoveQueue& queue,
               std::function<void()> on_change)
    : table_(table), gpus_(gpus), suspensions_(suspensions), queue_(queue), on_change_(std::move(on_change)) {}

MovePlan Drains::PlanOf(const Homes& homes, const sched::Rehoming& rehoming) const {
  MovePlan plan{.moves = homes.MovesOf(rehoming), .room_on = static_cast<std::uint32_t>(rehoming.room_on)};
  for (const auto& [dweller, why] : rehoming.stays)
    plan.stays.push_back({homes.ids[dweller], table_.Find(homes.ids[dweller])->spec.name, why});
  return plan;
}

// What is on its way already neither moves anew nor stays.
MovePlan Drains::Plan(std::uint32_t gpu) const {
  Homes homes = HomesOf(gpus_, suspensions_, queue_);
  homes.homes[gpu].unusable = "it drains";
  MovePlan plan = PlanOf(homes, sched::EmptyGpu(gpu, homes.homes, homes.dwellers));
  std::erase_if(plan.stays, [this](const MovePlan::Stay& stay) { return queue_.Moves(stay.vgpu); });
  return plan;
}

MovePlan Drains::Begin(std::uint32_t gpu, const std::string& why, Nanos now) {
  const MovePlan plan = Plan(gpu);
  if (!gpus_[gpu]->Health().Draining()) {
    gpus_[gpu]->Health().SetDraining(true);
    marked_.push_back(gpus_[gpu]->Info().uuid);
    const std::string text = (why.empty() ? "" : why + "; ") + Summary(plan);
    log::Info("GPU {} drains: {}", gpu, text);
    events::Note({.type = EventType::kGpuDraining, .gpu = gpu, .by_operator = why.empty(), .text = text});
    on_change_();
  }
  for (const VGpu* vgpu : gpus_[gpu]->VGpus()) why_stays_.erase(vgpu->id);
  for (const MovePlan::Stay& stay : plan.stays) why_stays_[stay.vgpu] = stay.why;
  Move(plan, now);
  return plan;
}

void Drains::Move(const MovePlan& plan, Nanos now) {
  for (const auto& together : plan.moves) {
    for (const VGpuMove& move : together) table_.Find(move.vgpu)->migrate_error.clear();
    queue_.Add(together, now);
  }
}

void Drains::End(std::uint32_t gpu, Nanos) {
  queue_.Drop(gpu);
  if (!gpus_[gpu]->Health().Draining()) return;
  gpus_[gpu]->Health().SetDraining(false);
  std::erase(marked_, gpus_[gpu]->Info().uuid);
  std::erase_if(why_stays_, [this](const auto& entry) { return table_.Find(entry.first) == nullptr; });
  for (const VGpu* vgpu : gpus_[gpu]->VGpus()) why_stays_.erase(vgpu->id);
  log::Info("GPU {} takes newcomers again", gpu);
  events::Note({.type = EventType::kGpuUndrained, .gpu = gpu, .by_operator = true});
  on_change_();
}

void Drains::Restore(std::vector<wire::Uuid> marked) {
  marked_ = std::move(marked);
  for (const auto& gpu : gpus_) {
    if (std::ranges::find(marked_, gpu->Info().uuid) != marked_.end()) gpu->Health().SetDraining(true);
  }
}

Drains::Standing Drains::StandingOf(std::uint32_t gpu) const {
  Standing standing;
  for (const VGpu* vgpu : gpus_[gpu]->VGpus()) {
    if (queue_.Moves(vgpu->id)) {
      standing.moving.push_back(vgpu->spec.name);
      continue;
    }
    std::string why = vgpu->migrate_error;
    const auto found = why_stays_.find(vgpu->id);
    if (why.empty() && found != why_stays_.end()) why = found->second;
    if (why.empty()) why = "it was not tried since the daemon started";
    standing.staying.push_back({vgpu->id, vgpu->spec.name, std::move(why)});
  }
  return standing;
}

Result<MovePlan> Drains::PlanRoom(const sched::Newcomer& newcomer) const {
  const Homes homes = HomesOf(gpus_, suspensions_, queue_);
  const auto found = sched::MakeRoom(newcomer, homes.homes, homes.dwellers);
  if (!found) return std::unexpected(found.error());
  return PlanOf(homes, *found);
}

}  // namespace tessera::server
