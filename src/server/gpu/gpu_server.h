#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/config/config.h"
#include "server/devices/gpu_driver.h"
#include "server/loop/event_loop.h"
#include "server/memory/memory_server.h"
#include "server/model/vgpu.h"
#include "server/record/trace_ring.h"
#include "server/swap/residency_server.h"
#include "server/swap/swap_file.h"
#include "server/swap/swap_slots.h"
#include "server/time/time_server.h"

namespace tessera::server {

struct SwapSetup {
  std::uint64_t bytes = 0;           // of host memory that may hold what does not fit; 0: memory is not swapped
  std::string floor;                 // host memory that stays free, bytes; empty: the mover's default
  bool soft = false;                 // the GPU is a soft one
  SwapFile file;                     // what may hold more, if it has bytes
  std::unique_ptr<SwapSlots> slots;  // what an earlier daemon's programs have, if there is anything
  std::string bequeath;              // the name of the socket at which movers give it to the next one
};

// Owns one physical GPU: the vGPUs on it, their tokens and their memory. Runs on the event loop's thread.
class GpuServer {
 public:
  // `reserve` bytes are kept back from all vGPUs. The loop, the configuration and the channels outlive the server.
  GpuServer(EventLoop& loop, std::uint32_t index, GpuInfo info, std::uint64_t reserve, const Config& config,
            ChannelServer& channels, SwapSetup swap = {});
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
  void OnJoin(std::function<void(Process&)> callback) { on_join_ = std::move(callback); }

  // What processes say; docs/protocol.md.
  void Wants(Process& process, bool waits);
  void Idle(Process& process, Nanos since);
  void Released(Process& process, Nanos drained_at, std::uint32_t epoch);
  std::uint64_t Reserve(Process& process, std::uint64_t bytes);
  void Return(Process& process, std::uint64_t bytes);
  std::uint64_t AddContext(Process& process);
  void DropContext(Process& process);
  // What the kernel gate counts of the process's memory, in all. False: it may not have that much; nothing changes.
  void Collect(const VGpu& vgpu, std::uint64_t bytes);
  bool Hold(Process& process, std::uint64_t bytes);
  void HoldAnyway(Process& process, std::uint64_t bytes);
  // What a process has that nobody counts, until the next measurement says it.
  void NoteMeasured(Process& process, std::uint64_t bytes);

  // An operator stops a process or a whole vGPU, or lets it go on: its channels, or its gate where those are not known.
  void Freeze(Process& process, bool frozen);
  void Freeze(VGpu& vgpu, bool frozen);

  // Freezes the channels of those that are to be frozen: that may not have been possible when it was ordered.
  void ApplyHolds();

  // Chooses anew between channels and gates: something that matters for it may have changed.
  void ChooseControl();
  void ChannelsChanged(pid_t pid);
  // The configuration of who gets time has changed.
  void ScheduleAnew() { SwitchTo(steers_); }
  bool Steers() const { return steers_; }
  const std::string& WhyGate() const { return why_gate_; }  // empty while the channels are steered

  // What is due by then is done; else the server's own timer does it.
  void AdvanceTo(Nanos now);

  // How much later than it wanted to the scheduler was called for what falls due by time.
  const Histogram& Lateness() const { return lateness_; }

  // Around a measurement of the device.
  void BeginMeasurement();
  void Reconcile(const DeviceUse& measured);
  // A program that does not tell when it works keeps others from running, or one seems to evade its freeze: it is worth
  // asking the device often.
  bool NeedsWatching() const;
  std::uint64_t UnmanagedBytes() const { return unmanaged_; }
  const std::unordered_map<pid_t, std::uint64_t>& Unmanaged() const { return unmanaged_by_process_; }

  // Called at most once between two measurements when something happened that makes a new one worth while.
  void OnActivity(std::function<void()> callback) { on_activity_ = std::move(callback); }
  void OnContextsChanged(std::function<void()> callback) { on_contexts_changed_ = std::move(callback); }
  bool Running() const { return time_->AnyRunning(); }

  // Gives no more orders: the last ones stand while the programs look for the next daemon.
  void Seal() { time_->Seal(); }

  bool Swaps() const { return residency_ != nullptr; }
  ResidencyServer& Residency() { return *residency_; }  // requires Swaps()
  const ResidencyServer& Residency() const { return *residency_; }
  // Brings a process's, or all of a vGPU's memory out until `keep` bytes of it are left on the GPU. It comes back when
  // it is used. ENOSYS where nothing is swapped.
  Result<void> Evict(Process& process, std::uint64_t keep);
  Result<void> Evict(VGpu& vgpu, std::uint64_t keep);

  // What of the process's memory lies on the GPU, and what of that cannot be moved; contexts are both.
  std::uint64_t ResidentBytes(const Process& process) const;
  std::uint64_t PinnedBytes(const Process& process) const;

  // Adds what has not changed since then, so that no record of it is in the copy.
  void TracePresent(TraceCopy& copy, Nanos since) const;

  MemoryServer& Memory() { return memory_; }
  const MemoryServer& Memory() const { return memory_; }
  const TimeServer& Time() const { return *time_; }
  sched::Usage UsageOf(const VGpu& vgpu, Nanos now) const;

  // Percent of the last second in which the vGPU was busy.
  double ComputePercent(const VGpu& vgpu, Nanos now) const;

 private:
  void AfterEvent(VGpu& vgpu, Nanos now);
  void NoteStandings(Nanos now);
  void OnTime();
  void TraceMemory(VGpu& vgpu, Nanos now) const;
  void NoteActivity();
  void NoteRefusal(Process& process, std::uint64_t bytes);
  void SetTimer();
  ResidencyServer::Host ResidencyHost();
  std::uint64_t RoomCapacity() const;
  std::uint64_t Outside(const Process& process) const;
  std::unique_ptr<TimeServer> MakeTime(bool steers) const;
  void SwitchTo(bool steers);
  void ApplyHold(Process& process);
  std::string WhyUnsteerable() const;
  void CheckFreeze(Process& process);
  void CheckMemory(Process& process, bool listed);
  void CheckWork(Process& process, bool worked, Nanos now);

  EventLoop& loop_;
  const std::uint32_t index_;
  const GpuInfo info_;
  const Config& config_;
  ChannelServer& channels_;
  SwapSetup swap_;
  bool steers_ = false;
  std::string why_gate_;
  std::unique_ptr<TimeServer> time_;
  MemoryServer memory_;
  EventLoop::Timer timer_;  // the scheduler's next deadline
  Histogram lateness_;
  std::vector<VGpu*> vgpus_;
  bool samples_ = true;  // the device told who worked, the last time
  std::uint64_t unmanaged_ = 0;
  std::unordered_map<pid_t, std::uint64_t> unmanaged_by_process_;
  bool mover_started_ = false;
  std::unique_ptr<ResidencyServer> residency_;  // null: memory is not swapped
  std::function<void()> on_activity_;
  std::function<void()> on_contexts_changed_;
  std::function<void(Process&)> on_join_;
};

}  // namespace tessera::server
