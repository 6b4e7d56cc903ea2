#include "server/migration/memory_giver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tessera::server {
namespace {

constexpr Nanos kAskMoverEvery = kMillisecond;

}  // namespace

void MemoryGiver::Give(const Process& process, GpuServer& from, GpuServer& to, std::set<std::uint64_t> but, Done done) {
  const Nanos now = MonotonicNow();
  gifts_.push_back(std::make_unique<Gift>(Gift{.pid = process.pid,
                                               .from = &from,
                                               .to = &to,
                                               .but = std::move(but),
                                               .done = std::move(done),
                                               .until = now + kPatience}));
  timer_.Arm(now);
}

// The process is on either GPU: its vGPU may have moved, or not yet.
Process* MemoryGiver::Find(const Gift& gift) {
  for (const GpuServer* gpu : {gift.from, gift.to}) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      const auto found = std::ranges::find(vgpu->processes, gift.pid, &Process::pid);
      if (found != vgpu->processes.end()) return *found;
    }
  }
  return nullptr;
}

void MemoryGiver::Begin(Gift& gift, Nanos now) {
  const Process* process = Find(gift);
  if (!process) {
    gift.error = Error{ESRCH, fmt::format("process {} has ended", gift.pid), ""};
    return;
  }
  for (GpuServer* gpu : {gift.from, gift.to}) gpu->Residency().StartMover(now);
  const auto from = gift.from->Placement().HandoverSide(), to = gift.to->Placement().HandoverSide();
  if (!from || !to || !from->link.Ready() || !to->link.Ready()) {
    if (now > gift.until)
      gift.error = Error{
          ETIMEDOUT, fmt::format("the movers of GPUs {} and {} are not there", gift.from->Index(), gift.to->Index()),
          "the daemon's log says why"};
    return;
  }
  gift.handover = std::make_unique<SlotHandover>(*from, *to, gift.pid, gift.but);
  auto begun = gift.handover->Start(
      [this, &gift](const Result<void>& given) { End(gift, given ? std::nullopt : std::optional(given.error())); });
  if (!begun) gift.error = begun.error();
}

void MemoryGiver::End(const Gift& gift, std::optional<Error> error) {
  const auto found = std::ranges::find(gifts_, &gift, [](const auto& each) { return each.get(); });
  const std::unique_ptr<Gift> ended = std::move(*found);
  gifts_.erase(found);
  if (error) {
    ended->handover.reset();
    return ended->done(std::unexpected(std::move(*error)));
  }
  ended->done(std::move(ended->handover));
}

void MemoryGiver::Step() {
  const Nanos now = MonotonicNow();
  for (const auto& gift : gifts_) {
    if (!gift->handover && !gift->error) Begin(*gift, now);
    if (gift->handover && !gift->error && !Find(*gift))
      gift->error = Error{ESRCH, fmt::format("process {} has ended", gift->pid), ""};
  }
  for (;;) {
    const auto over = std::ranges::find_if(gifts_, [](const auto& gift) { return gift->error.has_value(); });
    if (over == gifts_.end()) break;
    End(**over, (*over)->error);
  }
  if (!gifts_.empty()) timer_.Arm(now + kAskMoverEvery);
}

}  // namespace tessera::server
