#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/config/config.h"
#include "server/devices/gpu_driver.h"
#include "server/gpu/freezes.h"
#include "server/gpu/gpu_health.h"
#include "server/gpu/gpu_trace.h"
#include "server/gpu/measurement.h"
#include "server/gpu/memory_requests.h"
#include "server/gpu/placement.h"
#include "server/loop/event_loop.h"
#include "server/memory/memory_server.h"
#include "server/model/vgpu.h"
#include "server/swap/survivors.h"
#include "server/time/time_control.h"

namespace tessera::server {

// A server of one physical GPU: its vGPUs and their processes, and a part for each subject that serves them. Messages
// of processes and operators go to the part; joining and leaving, which concern all of them, come here. Runs on the
// event loop's thread.
class GpuServer {
 public:
  struct Hooks {
    // Called at most once between two measurements, when something happened that makes a new one worth while.
    std::function<void()> activity = [] {};
    std::function<void()> contexts_changed = [] {};
    // The process is about to join; it is in its vGPU, and nothing knows it yet.
    std::function<void(Process&, Nanos)> joining = [](Process&, Nanos) {};
    std::function<void(Process&, Nanos)> joined = [](Process&, Nanos) {};
    // The process is about to work for the first time since it joined, or since a context of it ended.
    std::function<void(const Process&)> begins = [](const Process&) {};
    std::function<void(const Process&)> left = [](const Process&) {};
    std::function<void()> members_changed = [] {};  // a process has joined a vGPU, or left it
    std::function<void()> looked = [] {};           // who runs and who waits was noted
    std::function<void()> memory_looked = [] {};  // where memory lies was looked at, and what is to be done is ordered
  };

  // `reserve` bytes are kept back from all vGPUs. The loop, the configuration and the channels outlive the server.
  GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config,
            ChannelServer& channels, SwapSetup swap, Hooks hooks);
  GpuServer(const GpuServer&) = delete;

  std::uint32_t Index() const { return index_; }
  const GpuInfo& Info() const { return info_; }
  const std::vector<VGpu*>& VGpus() const { return vgpus_; }

  // A failure changes nothing. ENODEV: the GPU has failed. EBUSY: it drains. `restored`: an earlier daemon had it so
  // (GoalServer::Set), or it comes from another GPU; then draining is no obstacle.
  Result<void> Add(VGpu& vgpu, Nanos now, bool restored = false);
  Result<void> Resize(VGpu& vgpu, const MemoryTerms& memory, const sched::Shares& compute,
                      const std::optional<sched::Goal>& goal, Nanos now);
  // Takes the GPU from the processes that are left: their gates close for good, their memory stays theirs.
  void Remove(VGpu& vgpu, Nanos now);
  // After the last process of a removed one is gone.
  void Forget(VGpu& vgpu);

  // `bytes` and `contexts` are what the process says that it holds already.
  void Join(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts, Nanos now);
  void Leave(Process& process, Nanos now);

  // The programs that an earlier daemon had here, and that have not come back.
  class Survivors& Survivors() { return survivors_; }

  TimeControl& Time() { return time_; }
  MemoryServer& Memory() { return memory_; }
  MemoryRequests& Requests() { return requests_; }
  class Freezes& Freezes() { return freezes_; }
  class Placement& Placement() { return placement_; }
  class Measurement& Measurement() { return measurement_; }
  GpuHealth& Health() { return health_; }
  const GpuTrace& Trace() const { return trace_; }

  bool Swaps() const { return placement_.Swaps(); }
  ResidencyServer& Residency() { return placement_.Residency(); }  // requires Swaps()

 private:
  // The vGPU is on `to` from now on, with its processes: their memory has left `from`, and they stand still. A failure
  // changes nothing. Part of Transfer (server/migration/vgpu_transfer.h).
  friend Result<void> HandOver(VGpu& vgpu, GpuServer& from, GpuServer& to, Nanos now);

  void TakeOn(VGpu& vgpu, Process& process, std::uint64_t bytes, std::uint32_t contexts, Nanos now);
  void TakeOff(Process& process, Nanos now);
  void EventOver();
  void Looked(Nanos now);

  const std::uint32_t index_;
  const GpuInfo info_;
  ChannelServer& channels_;
  const Hooks hooks_;
  std::vector<VGpu*> vgpus_;
  MemoryServer memory_;
  TimeControl time_;
  class Freezes freezes_;
  class Survivors survivors_;
  class Placement placement_;
  class Measurement measurement_;
  GpuHealth health_;
  GpuTrace trace_;
  MemoryRequests requests_;
};

}  // namespace tessera::server
