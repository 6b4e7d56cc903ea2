#include "server/gpu/gpu_trace.h"

#include "server/record/trace.h"

namespace tessera::server {
namespace {

// What the phase was about: what is in host memory, or what the driver saves.
std::uint64_t BytesOf(const Process& process) {
  switch (process.suspension.phase) {
    case SuspensionPhase::kLeaves:
    case SuspensionPhase::kFiles:
    case SuspensionPhase::kReads:
      return process.residence.Swapped();
    case SuspensionPhase::kSaves:
    case SuspensionPhase::kReturns:
    case SuspensionPhase::kRestores:
      return process.suspension.bytes;
    default:
      return 0;
  }
}

TraceRecord PhaseRecord(std::uint32_t gpu, const Process& process, SuspensionPhase next, Nanos now) {
  const SuspensionState& state = process.suspension;
  return {.at = now,
          .took = state.Begun() ? now - state.since : 0,
          .value = static_cast<std::uint64_t>(next),
          .other = BytesOf(process),
          .vgpu = process.vgpu->id,
          .pid = process.pid,
          .gpu = gpu,
          .kind = TraceKind::kSuspension,
          .old_value = static_cast<std::uint32_t>(state.phase)};
}

}  // namespace

void NotePhase(std::uint32_t gpu, const Process& process, SuspensionPhase next, Nanos now) {
  trace::Note(PhaseRecord(gpu, process, next, now));
}

void GpuTrace::NoteMemory(Nanos now) const {
  for (VGpu* vgpu : vgpus_) NoteMemory(*vgpu, now);
}

void GpuTrace::NoteMemory(VGpu& vgpu, Nanos now) const {
  constexpr Nanos kSeldom = 10 * kMillisecond;
  TracedMemory& traced = vgpu.traced;
  if (now - traced.at < kSeldom) return;
  std::uint64_t resident = 0, swapped = 0;
  for (const Process* process : vgpu.processes) {
    resident += placement_.ResidentBytes(*process);
    if (placement_.Swaps()) swapped += process->residence.Swapped();
  }
  if (resident == traced.resident && swapped == traced.swapped) return;
  traced = {now, resident, swapped};
  trace::Note(
      {.at = now, .value = resident, .other = swapped, .vgpu = vgpu.id, .gpu = gpu_, .kind = TraceKind::kMemory});
}

void GpuTrace::CopyPresent(TraceCopy& copy, Nanos since) const {
  for (const VGpu* vgpu : vgpus_) {
    const StandingLog::Period& present = vgpu->standing.Present();
    if (present.since != 0 && present.since < since)
      copy.records.push_back({.at = copy.now,
                              .took = copy.now - present.since,
                              .vgpu = vgpu->id,
                              .gpu = gpu_,
                              .kind = TraceKind::kStanding,
                              .old_value = static_cast<std::uint32_t>(present.standing),
                              .old_other = static_cast<std::uint32_t>(present.why)});
    if (vgpu->traced.at != 0 && vgpu->traced.at < since)
      copy.records.push_back({.at = copy.now,
                              .value = vgpu->traced.resident,
                              .other = vgpu->traced.swapped,
                              .vgpu = vgpu->id,
                              .gpu = gpu_,
                              .kind = TraceKind::kMemory});
    for (const Process* process : vgpu->processes) {
      const SuspensionState& suspension = process->suspension;
      if (suspension.Begun() && suspension.since < since)
        copy.records.push_back(PhaseRecord(gpu_, *process, suspension.phase, copy.now));
      const Nanos frozen = channels_.Freezer().StatusOf(process->pid, gpu_).frozen_since;
      if (frozen != 0 && frozen < since)
        copy.records.insert(
            copy.records.begin(),
            {.at = since,
             .value = static_cast<std::uint64_t>(channels_.Freezer().StatusOf(process->pid, gpu_).reasons),
             .pid = process->pid,
             .gpu = gpu_,
             .kind = TraceKind::kFrozen});
    }
  }
}

}  // namespace tessera::server
