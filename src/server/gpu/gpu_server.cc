#include "server/gpu/gpu_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "server/record/events.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

void NoteProcess(EventType type, std::uint32_t gpu, const VGpu& vgpu, const Process& process) {
  events::Note({.type = type,
                .gpu = gpu,
                .vgpu = vgpu.spec.name,
                .pid = process.pid,
                .owner = vgpu.spec.uid,
                .user = process.who.uid,
                .text = process.who.program});
}

}  // namespace

GpuServer::GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config,
                     ChannelServer& channels, SwapSetup swap, Hooks hooks)
    : index_(index),
      info_(std::move(info)),
      channels_(channels),
      hooks_(std::move(hooks)),
      memory_(Ledger(index, info_.memory_total, reserve, swap.RunnableOut(), swap.bytes + swap.file.bytes),
              info_.context_bytes),
      time_(loop, index, config, channels, vgpus_,
            {.looked = [this](Nanos now) { Looked(now); },
             .event_over = [this](Nanos) { EventOver(); },
             .begins = [this](const Process& process) { hooks_.begins(process); }}),
      freezes_(index, vgpus_, channels, time_),
      survivors_(loop,
                 [this] {
                   if (Swaps()) Residency().Look(MonotonicNow());
                 }),
      placement_(loop, config, std::move(swap),
                 {.gpu = index,
                  .info = info_,
                  .vgpus = vgpus_,
                  .channels = channels,
                  .memory = memory_,
                  .time = time_,
                  .freezes = freezes_,
                  .survivors = survivors_,
                  .unmanaged = [this] { return measurement_.UnmanagedBytes(); },
                  .looked = [this] { hooks_.memory_looked(); }}),
      measurement_(index, vgpus_, channels, memory_, time_, freezes_, placement_),
      health_(index, info_, vgpus_, channels, time_),
      trace_(index, vgpus_, channels, placement_),
      requests_(
          index, memory_, placement_, trace_,
          {.activity = [this] { hooks_.activity(); }, .contexts_changed = [this] { hooks_.contexts_changed(); }}) {}

void GpuServer::Looked(Nanos now) {
  freezes_.MindSpaces();
  trace_.NoteMemory(now);
  hooks_.looked();
}

void GpuServer::EventOver() {
  if (Swaps()) Residency().MarkDue();
  hooks_.activity();
  if (measurement_.NeedsWatching()) hooks_.contexts_changed();
}

Result<void> GpuServer::Add(VGpu& vgpu, Nanos now, bool restored) {
  if (auto takes = restored ? health_.Check() : health_.TakesNewcomers(); !takes) return takes;
  if (auto opened = memory_.Set(vgpu.id, vgpu.spec.memory); !opened) return opened;
  if (auto added = time_.Set(vgpu, vgpu.spec.compute, vgpu.spec.goal, restored, now); !added) {
    memory_.Close(vgpu.id);
    return added;
  }
  vgpus_.push_back(&vgpu);
  trace::NameVGpu(vgpu.id, vgpu.spec.name);
  if (Swaps()) Residency().MarkDue();
  return {};
}

Result<void> GpuServer::Resize(VGpu& vgpu, const MemoryTerms& memory, const sched::Shares& compute,
                               const std::optional<sched::Goal>& goal, Nanos now) {
  const MemoryTerms before = vgpu.spec.memory;
  if (auto changed = memory_.Set(vgpu.id, memory); !changed) return changed;
  if (auto updated = time_.Set(vgpu, compute, goal, false, now); !updated) {
    (void)memory_.Set(vgpu.id, before);  // cannot fail: it fitted a moment ago
    return updated;
  }
  vgpu.spec.memory = memory;
  vgpu.spec.compute = compute;
  vgpu.spec.goal = goal;
  if (Swaps()) Residency().MarkDue();
  measurement_.LimitChanged(vgpu, now);
  if (measurement_.NeedsWatching()) hooks_.contexts_changed();
  time_.Changed(vgpu, now);
  return {};
}

void GpuServer::Remove(VGpu& vgpu, Nanos now) {
  for (Process* process : vgpu.processes) process->page.SayRemoved();
  time_.Remove(vgpu, now);
  // Threads that wait for memory go on, too.
  for (Process* process : vgpu.processes) process->page.Ring();
  (void)memory_.Set(vgpu.id, {.max = 0});  // promises less: cannot fail
}

void GpuServer::Forget(VGpu& vgpu) {
  memory_.Close(vgpu.id);
  std::erase(vgpus_, &vgpu);
  if (Swaps()) Residency().MarkDue();
}

void GpuServer::Join(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts, Nanos now) {
  NoteProcess(EventType::kProcessStarted, index_, vgpu, process);
  TakeOn(vgpu, process, bytes, contexts, now);
}

void GpuServer::TakeOn(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts, Nanos now) {
  process.vgpu = &vgpu;
  survivors_.Attached(process.pid);
  hooks_.joining(process, now);
  freezes_.Joining(process);
  vgpu.processes.push_back(&process);
  hooks_.members_changed();
  trace::NameProgram(process.pid, process.who.program);
  if (vgpu.spec.compute.space.number != 0) channels_.EnterSpace(process.pid, vgpu.spec.compute.space.number);
  time_.Join(process, now);
  memory_.Join(vgpu.id, process.memory, bytes, contexts);
  if (!process.who.guest) measurement_.Joined(process);
  hooks_.joined(process, now);
  if (Swaps() && !process.who.guest) {
    channels_.Freezer().HeedMoveGuard(process.pid, index_, process.page.Fd(), offsetof(wire::Page, guard));
    Residency().Join(process, bytes, now);
  }
  freezes_.Joined(process, now);
  hooks_.activity();
  if (process.who.guest) hooks_.contexts_changed();
}

void GpuServer::Leave(Process& process, Nanos now) {
  const VGpu& vgpu = *process.vgpu;
  if (process.suspension.Begun()) NotePhase(index_, process, SuspensionPhase::kNone, now);
  TakeOff(process, now);
  NoteProcess(EventType::kProcessEnded, index_, vgpu, process);
}

void GpuServer::TakeOff(Process& process, Nanos now) {
  VGpu& vgpu = *process.vgpu;
  time_.Leave(process, now);
  memory_.Leave(process.memory);
  std::erase(vgpu.processes, &process);
  hooks_.members_changed();
  if (vgpu.spec.compute.space.number != 0) channels_.LeaveSpace(process.pid);
  freezes_.Left(process.pid, now);
  if (Swaps()) Residency().Leave(process, now);
  measurement_.Left(process.pid, now);
  hooks_.left(process);
  time_.Changed(vgpu, now);
  time_.Choose(now);
}

}  // namespace tessera::server
