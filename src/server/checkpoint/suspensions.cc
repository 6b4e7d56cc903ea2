#include "server/checkpoint/suspensions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "server/checkpoint/obstacles.h"

namespace tessera::server {
namespace {

using enum SuspensionPhase;

// Nothing tells when a program has drained, and each step follows the one before it.
constexpr Nanos kStepEvery = kMillisecond;
// Of one that stays away nothing has to be done, but to see that it has ended.
constexpr Nanos kLookEvery = kSecond;

bool ForMigration(Suspensions::To to) {
  return to == Suspensions::To::kOtherGpu || to == Suspensions::To::kOtherGpuInPlace;
}

}  // namespace

Suspensions::Suspensions(EventLoop& loop, const Gpus& gpus, SuspendedFiles& files, MakeCheckpointer make,
                         const Suspension::Bounds& bounds)
    : gpus_(gpus), files_(files), make_(std::move(make)), bounds_(bounds), timer_(loop, [this] { Step(); }) {}

const Suspension* Suspensions::Find(pid_t pid) const {
  const auto found = programs_.find(pid);
  return found == programs_.end() || found->second->Over() ? nullptr : found->second.get();
}

Result<void> Suspensions::Check(pid_t pid, To to) const {
  const Suspension* known = Find(pid);
  if (known && known->Phase() >= kReads)
    return Fail(EBUSY, fmt::format("process {} is on its way back to its GPU", pid), "try again in a moment");
  std::vector<const Process*> processes;
  for (const auto& gpu : gpus_) {
    if (to == To::kFile && !gpu->Swaps())
      return Fail(ENOTSUP, fmt::format("GPU {} has no host memory to write to a file", gpu->Index()),
                  "set swap.size, or suspend it to memory");
    for (const VGpu* vgpu : gpu->VGpus()) {
      std::ranges::copy_if(vgpu->processes, std::back_inserter(processes),
                           [&](const Process* process) { return process->pid == pid; });
    }
  }
  return known ? Result<void>() : MayLeave(pid, processes);
}

Result<void> Suspensions::Suspend(pid_t pid, Nanos now, To to, bool by_itself) {
  if (auto may = Check(pid, to); !may) return may;
  if (Find(pid)) {
    if (to == To::kFile) programs_.at(pid)->ToFile();
    if (!ForMigration(to) && !by_itself) programs_.at(pid)->Stay();
    programs_.at(pid)->Step(now);
    timer_.Arm(now);
    return {};
  }
  auto suspension = std::make_unique<Suspension>(pid, gpus_, files_, figures_, make_(), bounds_);
  if (to == To::kFile) suspension->ToFile();
  if (ForMigration(to)) suspension->ForMigration(to == To::kOtherGpuInPlace);
  suspension->SetByItself(by_itself);
  if (auto begun = suspension->Begin(now); !begun) return begun;
  programs_[pid] = std::move(suspension);
  timer_.Arm(now + kStepEvery);
  return {};
}

void Suspensions::Joining(Process& process, Nanos now) {
  if (process.suspension.Holds()) return;  // its vGPU goes to another GPU
  const std::uint32_t claimed = std::exchange(process.suspension.claimed, 0);
  const auto gpus = static_cast<std::uint32_t>(gpus_.size());
  if (claimed != 0) process.suspension.saved_on = std::min(wire::AwayFrom(claimed), gpus - 1);
  process.suspension.by_itself = wire::AwayByItself(claimed);
  if (claimed != 0 && !Find(process.pid)) {
    auto suspension = std::make_unique<Suspension>(process.pid, gpus_, files_, figures_, make_(), bounds_);
    suspension->TakeOver(wire::AwayReturns(claimed), now);
    programs_[process.pid] = std::move(suspension);
    timer_.Arm(now + kStepEvery);
  }
  if (Find(process.pid)) programs_.at(process.pid)->Joining(process, now);
}

void Suspensions::Resume(pid_t pid, Nanos now) {
  if (!Find(pid)) return;
  programs_.at(pid)->Return(now);
  timer_.Arm(now);
}

void Suspensions::Step() {
  const Nanos now = MonotonicNow();
  bool moves = false;
  for (const auto& [pid, suspension] : programs_) {
    suspension->Step(now);
    moves |= suspension->Phase() != kSuspended;
  }
  std::erase_if(programs_, [](const auto& each) { return each.second->Over(); });
  if (!programs_.empty()) timer_.Arm(now + (moves ? kStepEvery : kLookEvery));
}

}  // namespace tessera::server
