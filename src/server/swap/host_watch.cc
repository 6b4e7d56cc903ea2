#include "server/swap/host_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/size.h"

namespace tessera::server {
namespace {

// A program says what it uses as rarely as this, and does not ring.
constexpr Nanos kLookEvery = kSecond;
constexpr Nanos kLookAtMost = 50 * kMillisecond;
// What is stranded is known soon after a program has a line to another mover.
constexpr Nanos kLookForStrandedEvery = 2 * kSecond;

std::string Seconds(Nanos time) { return fmt::format("{} s", (time + kSecond / 2) / kSecond); }

}  // namespace

Nanos HostWatch::Look(const std::vector<VGpu*>& vgpus, const sched::ResidencyState& state, Nanos now) const {
  bool any = false, out = false;
  for (std::size_t i = 0; i < vgpus.size(); ++i) {
    for (std::size_t j = 0; j < vgpus[i]->processes.size(); ++j) {
      Process& process = *vgpus[i]->processes[j];
      const sched::ProcessResidence& lies = state.vgpus[i].processes[j];
      const sched::HostUse use = process.residence.Use(lies.works && !lies.stopped);
      Tell(process, use, process.residence.host_work.Note(use, longest_, now), now);
      out |= LookForStranded(process);
      any |= (use.runs && use.out > 0) || process.residence.host_work.ToldFor(now).has_value();
    }
  }
  if (any) return now + std::clamp(longest_ / 10, kLookAtMost, kLookEvery);
  return out ? now + kLookForStrandedEvery : kNever;
}

// True if it may have some later.
bool HostWatch::LookForStranded(Process& process) const {
  Residence& residence = process.residence;
  if (residence.stranded_told) return false;
  const std::uint64_t stranded = residence.Stranded();
  if (stranded == 0) return residence.Swapped() > 0;
  residence.stranded_told = true;
  Note(EventType::kMemoryStranded, process,
       fmt::format("{} of {} lie in host memory, where no mover has them, until it frees them; start it again to have "
                   "all of its memory on the GPU",
                   FormatSize(stranded), process.who.program));
  return false;
}

void HostWatch::Tell(const Process& process, const sched::HostUse& use, sched::HostWork::News news, Nanos now) const {
  using enum sched::HostWork::News;
  if (news == kNone) return;
  const bool began = news == kBegan;
  const sched::HostWork& work = process.residence.host_work;
  Note(began ? EventType::kMemoryOnHost : EventType::kMemoryBack, process,
       began ? fmt::format(
                   "{} has worked for {} in the last {} while {} of the {} that it uses lay in host memory; raise "
                   "memory.limit or memory.request, or move other programs",
                   process.who.program, Seconds(*work.ToldFor(now)), Seconds(now - *work.Since()),
                   FormatSize(use.used_out), FormatSize(use.used))
             : fmt::format("{} has what it uses on the GPU again", process.who.program));
}

void HostWatch::Note(EventType type, const Process& process, std::string text) const {
  events::Note({.type = type,
                .gpu = gpu_,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .owner = process.vgpu->spec.uid,
                .user = process.who.uid,
                .text = std::move(text)});
}

}  // namespace tessera::server
