#include "server/gpu_server.h"

#include <algorithm>

namespace tessera::server {

GpuServer::GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config)
    : index_(index),
      info_(std::move(info)),
      token_(config.sched, config.in_flight),
      memory_(Ledger(index, info_.memory_total, reserve), info_.context_bytes),
      timer_(loop, [this] {
        token_.Advance(MonotonicNow());
        timer_.Arm(token_.NextDeadline());
      }) {}

Result<void> GpuServer::Add(VGpu& vgpu) {
  if (auto opened = memory_.Open(vgpu.id, vgpu.spec.memory); !opened) return opened;
  if (auto added = token_.Add(vgpu.id, vgpu.spec.compute); !added) {
    memory_.Close(vgpu.id);
    return added;
  }
  vgpus_.push_back(&vgpu);
  return {};
}

Result<void> GpuServer::Resize(VGpu& vgpu, const MemoryTerms& memory, const sched::Shares& compute) {
  const MemoryTerms before = vgpu.spec.memory;
  if (auto changed = memory_.Change(vgpu.id, memory); !changed) return changed;
  const Nanos now = MonotonicNow();
  if (auto updated = token_.Update(vgpu.id, compute, now); !updated) {
    (void)memory_.Change(vgpu.id, before);  // cannot fail: it fitted a moment ago
    return updated;
  }
  vgpu.spec.memory = memory;
  vgpu.spec.compute = compute;
  AfterToken(vgpu, now);
  return {};
}

void GpuServer::Remove(VGpu& vgpu) {
  token_.Remove(vgpu.id, MonotonicNow());
  timer_.Arm(token_.NextDeadline());
  (void)memory_.Change(vgpu.id, {.limit = {}, .max = 0});  // promises less: cannot fail
}

void GpuServer::Forget(VGpu& vgpu) {
  memory_.Close(vgpu.id);
  std::erase(vgpus_, &vgpu);
}

void GpuServer::Join(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts) {
  process.vgpu = &vgpu;
  vgpu.processes.push_back(&process);
  token_.Join(vgpu.id, process.gate);
  memory_.Join(vgpu.id, process.memory, bytes, contexts);
  NoteActivity();
}

void GpuServer::Leave(Process& process) {
  const Nanos now = MonotonicNow();
  token_.Leave(process.gate, now);
  memory_.Leave(process.memory);
  std::erase(process.vgpu->processes, &process);
  AfterToken(*process.vgpu, now);
}

void GpuServer::Wants(Process& process) {
  const Nanos now = MonotonicNow();
  token_.Wants(process.gate, now);
  AfterToken(*process.vgpu, now);
}

void GpuServer::Idle(Process& process, Nanos since) {
  const Nanos now = MonotonicNow();
  token_.Idle(process.gate, now, since);
  AfterToken(*process.vgpu, now);
}

void GpuServer::Released(Process& process, Nanos drained_at, std::uint32_t epoch) {
  const Nanos now = MonotonicNow();
  token_.Released(process.gate, now, drained_at, epoch);
  AfterToken(*process.vgpu, now);
}

std::uint64_t GpuServer::Reserve(Process& process, std::uint64_t bytes) {
  NoteActivity();
  return memory_.Reserve(process.memory, bytes);
}

void GpuServer::Return(Process& process, std::uint64_t bytes) {
  NoteActivity();
  memory_.Return(process.memory, bytes);
}

std::uint64_t GpuServer::AddContext(Process& process) {
  if (on_contexts_changed_) on_contexts_changed_();
  return memory_.AddContext(process.memory);
}

void GpuServer::DropContext(Process& process) {
  if (on_contexts_changed_) on_contexts_changed_();
  memory_.DropContext(process.memory);
}

void GpuServer::BeginMeasurement() {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) MemoryServer::BeginMeasurement(process->memory);
  }
}

void GpuServer::Reconcile(const DeviceMemory& measured) {
  std::uint64_t managed = 0;
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      const auto found = measured.by_process.find(process->pid);
      if (found == measured.by_process.end()) continue;
      managed += found->second;
      memory_.Reconcile(process->memory, found->second);
    }
  }
  unmanaged_ = measured.used > managed ? measured.used - managed : 0;
}

double GpuServer::ComputePercent(const VGpu& vgpu, Nanos now) const {
  return vgpu.busy.Percent(now, token_.UsageOf(vgpu.id, now).busy);
}

// After every event that may have moved the token.
void GpuServer::AfterToken(VGpu& vgpu, Nanos now) {
  timer_.Arm(token_.NextDeadline());
  if (!vgpu.removed && vgpu.busy.Due(now)) vgpu.busy.Note(now, token_.UsageOf(vgpu.id, now).busy);
  NoteActivity();
}

void GpuServer::NoteActivity() {
  if (on_activity_) on_activity_();
}

}  // namespace tessera::server
