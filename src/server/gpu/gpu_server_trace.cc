// The side of GpuServer that tells what happens: who waits and why, where memory lies, who got none.
#include <fmt/format.h>

#include <utility>

#include "base/size.h"
#include "server/gpu/gpu_server.h"
#include "server/record/events.h"
#include "server/record/trace.h"

namespace tessera::server {

// What happened to one vGPU may let another one wait, or end its wait.
void GpuServer::NoteStandings(Nanos now) {
  for (VGpu* vgpu : vgpus_) {
    const Standing standing = time_->StandingOf(vgpu->id);
    const bool waits = standing == Standing::kWaiting;
    const WaitReason why = waits ? time_->WhyWaiting(vgpu->id) : WaitReason::kNone;
    vgpu->compute_pressure.Note(now, waits);
    TraceMemory(*vgpu, now);
    if (const auto before = vgpu->standing.Note(now, standing, why))
      trace::Note({.at = now,
                   .took = before->since == 0 ? 0 : now - before->since,
                   .value = static_cast<std::uint64_t>(standing),
                   .other = static_cast<std::uint64_t>(why),
                   .vgpu = vgpu->id,
                   .gpu = index_,
                   .kind = TraceKind::kStanding,
                   .old_value = static_cast<std::uint32_t>(before->standing),
                   .old_other = static_cast<std::uint32_t>(before->why)});
  }
}

// Where its memory lies, if that changed. No more often than a timeline can show.
void GpuServer::TraceMemory(VGpu& vgpu, Nanos now) const {
  constexpr Nanos kSeldom = 10 * kMillisecond;
  TracedMemory& traced = vgpu.traced;
  if (now - traced.at < kSeldom) return;
  std::uint64_t resident = 0, swapped = 0;
  for (const Process* process : vgpu.processes) {
    resident += ResidentBytes(*process);
    if (residency_) swapped += ResidencyServer::Swapped(*process);
  }
  if (resident == traced.resident && swapped == traced.swapped) return;
  traced = {now, resident, swapped};
  trace::Note(
      {.at = now, .value = resident, .other = swapped, .vgpu = vgpu.id, .gpu = index_, .kind = TraceKind::kMemory});
}

void GpuServer::TracePresent(TraceCopy& copy, Nanos since) const {
  for (const VGpu* vgpu : vgpus_) {
    const StandingLog::Period& present = vgpu->standing.Present();
    if (present.since != 0 && present.since < since)
      copy.records.push_back({.at = copy.now,
                              .took = copy.now - present.since,
                              .vgpu = vgpu->id,
                              .gpu = index_,
                              .kind = TraceKind::kStanding,
                              .old_value = static_cast<std::uint32_t>(present.standing),
                              .old_other = static_cast<std::uint32_t>(present.why)});
    if (vgpu->traced.at != 0 && vgpu->traced.at < since)
      copy.records.push_back({.at = copy.now,
                              .value = vgpu->traced.resident,
                              .other = vgpu->traced.swapped,
                              .vgpu = vgpu->id,
                              .gpu = index_,
                              .kind = TraceKind::kMemory});
    for (const Process* process : vgpu->processes) {
      const Nanos frozen = channels_.FrozenSince(process->pid, index_);
      if (frozen != 0 && frozen < since)
        copy.records.insert(copy.records.begin(),
                            {.at = since,
                             .value = static_cast<std::uint64_t>(channels_.Reasons(process->pid, index_)),
                             .pid = process->pid,
                             .gpu = index_,
                             .kind = TraceKind::kFrozen});
    }
  }
}

// Those who try again and again are told of once in a while.
void GpuServer::NoteRefusal(Process& process, std::uint64_t bytes) {
  constexpr Nanos kSeldom = kSecond;
  const Nanos now = MonotonicNow();
  if (process.work.refusal_reported_at != 0 && now - process.work.refusal_reported_at < kSeldom) return;
  process.work.refusal_reported_at = now;
  const MemoryServer::Figures figures = memory_.FiguresOf(process.vgpu->id);
  events::Note({.type = EventType::kMemoryRefused,
                .gpu = index_,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .text = fmt::format("{} asked for {}; {} of {} are free", process.who.program, FormatSize(bytes),
                                    FormatSize(figures.available), FormatSize(figures.max))});
}

}  // namespace tessera::server
