#include "server/draining/move_queue.h"

#include <algorithm>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kBetweenSteps = 5 * kMillisecond;

}  // namespace

void MoveQueue::Add(std::vector<VGpuMove> together, Nanos now) {
  if (std::ranges::any_of(together, [this](const VGpuMove& move) { return Moves(move.vgpu); })) return;
  waiting_.push_back(std::move(together));
  timer_.Arm(now);
}

void MoveQueue::Drop(std::uint32_t gpu) {
  std::erase_if(waiting_, [&](const Together& together) {
    return std::ranges::any_of(together, [&](const VGpuMove& move) {
      const VGpu* vgpu = table_.Find(move.vgpu);
      return vgpu && vgpu->gpu == gpu && move.to != gpu;
    });
  });
}

std::optional<std::uint32_t> MoveQueue::TargetOf(VgpuId vgpu) const {
  if (const Migration* migration = migrations_.Find(vgpu)) return migration->TargetOf(vgpu);
  for (const Together& together : waiting_) {
    const auto found = std::ranges::find(together, vgpu, &VGpuMove::vgpu);
    if (found != together.end()) return found->to;
  }
  return {};
}

bool MoveQueue::UnderWay(const Together& together) const {
  return std::ranges::any_of(together, [this](const VGpuMove& move) { return migrations_.Find(move.vgpu) != nullptr; });
}

void MoveQueue::Step(Nanos now) {
  std::erase_if(begun_, [this](const Together& together) { return !UnderWay(together); });
  while (!waiting_.empty() && begun_.size() < kAtOnce) {
    Together next = std::move(waiting_.front());
    waiting_.pop_front();
    std::erase_if(next, [this](const VGpuMove& move) { return table_.Find(move.vgpu) == nullptr; });
    if (next.empty()) continue;
    if (auto begun = migrations_.Begin(next, now); !begun) {
      for (const VGpuMove& move : next) {
        VGpu* vgpu = table_.Find(move.vgpu);
        if (move.to != vgpu->gpu) vgpu->migrate_error = begun.error().Text();
        if (move.to != vgpu->gpu) log::Warn("vGPU {} stays: {}", vgpu->spec.name, begun.error().Text());
      }
      continue;
    }
    begun_.push_back(std::move(next));
  }
  if (!waiting_.empty() || !begun_.empty()) timer_.Arm(now + kBetweenSteps);
}

}  // namespace tessera::server
