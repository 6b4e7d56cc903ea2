#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/channels/channel_server.h"
#include "server/devices/gpu_driver.h"
#include "server/model/vgpu.h"
#include "server/time/time_control.h"

namespace tessera::server {

// The faults that one GPU has told of, and whether it has failed, or drains. A GPU that has failed takes no newcomers
// and its channels are left alone; one that drains takes no newcomers. What is on it stays, and other GPUs go on. Runs
// on the loop's thread.
class GpuHealth {
 public:
  struct Figures {
    std::uint64_t xids = 0;        // critical Xids
    std::uint64_t ecc_errors = 0;  // double-bit errors
    std::uint64_t last_xid = 0;    // the youngest one's number; 0: there was none
    std::string last;              // the youngest fault, for people; empty: there was none
    std::int64_t last_us = 0;      // when that was, wall clock
    std::string failed;            // why the GPU has failed; empty: it has not
  };

  // Everything that is given outlives the object.
  GpuHealth(std::uint32_t gpu, const GpuInfo& info, const std::vector<VGpu*>& vgpus, ChannelServer& channels,
            TimeControl& time)
      : gpu_(gpu), info_(info), vgpus_(vgpus), channels_(channels), time_(time) {}

  // Counts it, and makes events of it: one of each kind a second at most.
  void Note(const GpuFault& fault, Nanos now);

  bool Failed() const { return !figures_.failed.empty(); }
  // ENODEV if it has failed.
  Result<void> Check() const;
  // While it drains, it takes no newcomers; what is on it goes on.
  void SetDraining(bool draining) { draining_ = draining; }
  bool Draining() const { return draining_; }
  // Whether new vGPUs and new programs may come: ENODEV if it has failed, EBUSY if it drains.
  Result<void> TakesNewcomers() const;
  const Figures& FiguresNow() const { return figures_; }

 private:
  void Fail(const GpuFault& fault, Nanos now);

  const std::uint32_t gpu_;
  const GpuInfo& info_;
  const std::vector<VGpu*>& vgpus_;
  ChannelServer& channels_;
  TimeControl& time_;
  Figures figures_;
  bool draining_ = false;
  Nanos told_at_ = 0;  // when an event last told of a fault; 0: never
};

}  // namespace tessera::server
