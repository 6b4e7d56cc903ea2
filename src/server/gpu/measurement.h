#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/devices/gpu_driver.h"
#include "server/gpu/freezes.h"
#include "server/gpu/placement.h"
#include "server/memory/memory_server.h"
#include "server/model/vgpu.h"
#include "server/time/time_control.h"

namespace tessera::server {

// Compares one GPU's own figures about its processes with the daemon's: charges memory that was not reported, finds
// processes that evade a freeze or the kernel gate, and learns whether programs without a shim work. Runs on the loop's
// thread.
class Measurement {
 public:
  // Everything that is given outlives the object.
  Measurement(std::uint32_t gpu, const std::vector<VGpu*>& vgpus, ChannelServer& channels, MemoryServer& memory,
              TimeControl& time, Freezes& freezes, const Placement& placement);

  // Before the device is asked, which takes its time while programs go on; and what it said.
  void Begin();
  void Reconcile(const DeviceUse& measured, Nanos now);

  // A program has joined that was nobody's until now, and says itself what it has.
  void Joined(const Process& process);

  // A program has left. The device lists it until its memory is gone, which is nobody's claim to the GPU any more.
  void Left(pid_t pid, Nanos now) { left_[pid] = now; }

  // A vGPU may have more memory now, or less.
  void LimitChanged(const VGpu& vgpu, Nanos now);

  // Whether it is worth asking the device often: a program that does not tell when it works keeps others from running,
  // one tells of work that only the device can confirm, or one seems to evade its freeze.
  bool NeedsWatching() const;

  // Memory on the GPU that belongs to no vGPU, in all and as far as the device names processes.
  std::uint64_t UnmanagedBytes() const { return unmanaged_; }
  const std::unordered_map<pid_t, std::uint64_t>& Unmanaged() const { return unmanaged_by_process_; }

 private:
  void CheckMemory(Process& process, bool listed, Nanos now);
  void CheckWork(Process& process, bool worked, Nanos now);
  void CheckClaim(Process& process, bool worked, Nanos now);

  const std::uint32_t gpu_;
  const std::vector<VGpu*>& vgpus_;
  ChannelServer& channels_;
  MemoryServer& memory_;
  TimeControl& time_;
  Freezes& freezes_;
  const Placement& placement_;
  bool samples_ = true;  // the device told who worked, the last time
  std::uint64_t unmanaged_ = 0;
  std::unordered_map<pid_t, std::uint64_t> unmanaged_by_process_;
  std::unordered_map<pid_t, Nanos> left_;  // lately, and when
};

}  // namespace tessera::server
