#include "server/swap/host_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "server/record/events.h"

namespace tessera::server {
namespace {

// A program says what it uses as rarely as this, and does not ring.
constexpr Nanos kLookEvery = kSecond;
constexpr Nanos kLookAtMost = 50 * kMillisecond;

std::string Seconds(Nanos time) { return fmt::format("{} s", (time + kSecond / 2) / kSecond); }

}  // namespace

Nanos HostWatch::Look(const std::vector<VGpu*>& vgpus, const sched::ResidencyState& state, Nanos now) const {
  bool any = false;
  for (std::size_t i = 0; i < vgpus.size(); ++i) {
    for (std::size_t j = 0; j < vgpus[i]->processes.size(); ++j) {
      Process& process = *vgpus[i]->processes[j];
      const sched::ProcessResidence& lies = state.vgpus[i].processes[j];
      const sched::HostUse use = process.residence.Use(lies.works && !lies.stopped);
      Tell(process, use, process.residence.host_work.Note(use, longest_, now), now);
      any |= (use.runs && use.out > 0) || process.residence.host_work.ToldFor(now).has_value();
    }
  }
  return any ? now + std::clamp(longest_ / 10, kLookAtMost, kLookEvery) : kNever;
}

void HostWatch::Tell(const Process& process, const sched::HostUse& use, sched::HostWork::News news, Nanos now) const {
  using enum sched::HostWork::News;
  if (news == kNone) return;
  const bool began = news == kBegan;
  const sched::HostWork& work = process.residence.host_work;
  events::Note(
      {.type = began ? EventType::kMemoryOnHost : EventType::kMemoryBack,
       .gpu = gpu_,
       .vgpu = process.vgpu->spec.name,
       .pid = process.pid,
       .owner = process.vgpu->spec.uid,
       .user = process.who.uid,
       .text = began ? fmt::format("{} has worked for {} in the last {} while {} of the {} that it uses lay in host "
                                   "memory; raise memory.limit or memory.request, or move other programs",
                                   process.who.program, Seconds(*work.ToldFor(now)), Seconds(now - *work.Since()),
                                   FormatSize(use.used_out), FormatSize(use.used))
                     : fmt::format("{} has what it uses on the GPU again", process.who.program)});
}

}  // namespace tessera::server
