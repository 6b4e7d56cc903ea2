#include "server/migration/migrations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tessera::server {
namespace {

constexpr Nanos kBetweenSteps = kMillisecond;

}  // namespace

Migrations::Migrations(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus, Suspensions& suspensions,
                       Migration::Means means)
    : table_(table), gpus_(gpus), suspensions_(suspensions), means_(std::move(means)), timer_(loop, [this] {
        Step();
      }) {}

std::unique_ptr<Migration> Migrations::Make(const std::vector<VGpuMove>& moves) const {
  return std::make_unique<Migration>(moves, table_, gpus_, suspensions_, means_);
}

const Migration* Migrations::Find(VgpuId vgpu) const {
  const auto found = std::ranges::find_if(migrations_, [&](const auto& each) { return each->Moves(vgpu); });
  return found == migrations_.end() ? nullptr : found->get();
}

bool Migrations::Carries(pid_t pid) const {
  return std::ranges::any_of(migrations_, [pid](const auto& each) { return each->Carries(pid); });
}

bool Migrations::BringBack(pid_t pid, Nanos now) {
  const auto found = std::ranges::find_if(migrations_, [pid](const auto& each) { return each->Carries(pid); });
  if (found == migrations_.end()) return false;
  (*found)->BringBack(pid, now);
  return true;
}

Result<void> Migrations::Check(const std::vector<VGpuMove>& moves) const {
  for (const VGpuMove& move : moves) {
    if (Find(move.vgpu))
      return Fail(EBUSY, fmt::format("vGPU {} is on its way to another GPU", table_.Find(move.vgpu)->spec.name),
                  "wait until it is there");
  }
  return Make(moves)->Check();
}

Result<void> Migrations::Begin(const std::vector<VGpuMove>& moves, Nanos now) {
  if (auto may = Check(moves); !may) return may;
  auto migration = Make(moves);
  if (auto begun = migration->Begin(now); !begun) return begun;
  migrations_.push_back(std::move(migration));
  timer_.Arm(now + kBetweenSteps);
  return {};
}

void Migrations::Step() {
  const Nanos now = MonotonicNow();
  for (const auto& migration : migrations_) migration->Step(now);
  std::erase_if(migrations_, [](const auto& each) { return each->Over(); });
  if (!migrations_.empty()) timer_.Arm(now + kBetweenSteps);
}

}  // namespace tessera::server
