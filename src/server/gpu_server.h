#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/config.h"
#include "server/event_loop.h"
#include "server/gpu_driver.h"
#include "server/memory_server.h"
#include "server/token_server.h"
#include "server/vgpu.h"

namespace tessera::server {

// Owns one physical GPU: the vGPUs on it, their tokens and their memory. Runs on the event loop's thread.
class GpuServer {
 public:
  // `reserve` bytes are kept back from all vGPUs.
  GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config);
  GpuServer(const GpuServer&) = delete;

  std::uint32_t Index() const { return index_; }
  const GpuInfo& Info() const { return info_; }
  const std::vector<VGpu*>& VGpus() const { return vgpus_; }

  // vGPUs as objects. A failure changes nothing.
  Result<void> Add(VGpu& vgpu);
  Result<void> Resize(VGpu& vgpu, const MemoryTerms& memory, const sched::Shares& compute);
  // Takes the GPU from the processes that are left: their gates close for good, their memory stays theirs.
  void Remove(VGpu& vgpu);
  // After the last process of a removed one is gone.
  void Forget(VGpu& vgpu);

  // Processes. `bytes` and `contexts` are what the process says that it holds already.
  void Join(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts);
  void Leave(Process& process);

  // What processes say; docs/protocol.md.
  void Wants(Process& process);
  void Idle(Process& process, Nanos since);
  void Released(Process& process, Nanos drained_at, std::uint32_t epoch);
  std::uint64_t Reserve(Process& process, std::uint64_t bytes);
  void Return(Process& process, std::uint64_t bytes);
  std::uint64_t AddContext(Process& process);
  void DropContext(Process& process);

  // Around a measurement of the device.
  void BeginMeasurement();
  void Reconcile(const DeviceMemory& measured);
  std::uint64_t UnmanagedBytes() const { return unmanaged_; }

  // Called at most once between two measurements when something happened that makes a new one worth while.
  void OnActivity(std::function<void()> callback) { on_activity_ = std::move(callback); }
  void OnContextsChanged(std::function<void()> callback) { on_contexts_changed_ = std::move(callback); }
  bool Running() const { return token_.Holder().has_value(); }

  // Gives no more orders: the last ones stand while the programs look for the next daemon.
  void Freeze() { token_.Freeze(); }

  MemoryServer& Memory() { return memory_; }
  const MemoryServer& Memory() const { return memory_; }
  const TokenServer& Token() const { return token_; }

  // Percent of the last second in which the vGPU was busy.
  double ComputePercent(const VGpu& vgpu, Nanos now) const;

 private:
  void AfterToken(VGpu& vgpu, Nanos now);
  void NoteActivity();

  const std::uint32_t index_;
  const GpuInfo info_;
  TokenServer token_;
  MemoryServer memory_;
  EventLoop::Timer timer_;  // the scheduler's next deadline
  std::vector<VGpu*> vgpus_;
  std::uint64_t unmanaged_ = 0;
  std::function<void()> on_activity_;
  std::function<void()> on_contexts_changed_;
};

}  // namespace tessera::server
