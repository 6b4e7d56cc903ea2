#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "sched/tokens/token_scheduler.h"
#include "server/figures/standing_log.h"
#include "server/model/gate_record.h"

namespace tessera::server {

// Divides the time of one GPU among its vGPUs: decides by a scheduler of src/sched, and acts on the gates of the
// processes or on their channels. One time server serves a GPU at a time; TimeControl chooses it.
class TimeServer {
 public:
  using Id = sched::VgpuId;
  struct State {
    Standing standing = Standing::kIdle;  // kIdle also of a vGPU that is gone
    WaitReason why = WaitReason::kNone;   // if it waits
    Nanos slice = 0;                      // of all its processes together; 0: the driver's default
  };

  // Time of a space.
  struct SpaceTime {
    Nanos passed = 0;  // in which its tokens' time went on: UsageOf its vGPUs counts that
    Nanos had = 0;     // of it, the time that it had of the GPU
  };

  struct Deadline {
    Nanos at = kNever;    // Advance is to be called then
    bool urgent = false;  // the news that an idle process has work again is worth looking for without a pause
  };

  virtual ~TimeServer() = default;

  // Adds the vGPU, or changes its shares. A failure changes nothing.
  virtual Result<void> Set(Id vgpu, const sched::Shares& shares, Nanos now) = 0;
  // Closes the gates that are left, for good.
  virtual void Remove(Id vgpu, Nanos now) = 0;

  virtual void Join(Id vgpu, GateRecord& gate, Nanos now) = 0;
  virtual void Leave(GateRecord& gate, Nanos now) = 0;  // also of a process that died, in any state
  // Gives all gates up, closed, for another server to take them over: a process that runs drains, and asks again.
  virtual void Abandon(Nanos now) = 0;

  // Messages of a process. Nonsense is ignored, times are clipped to what can be true. `waits`: a submission waits for
  // an order; else work is on its way already.
  virtual void Wants(GateRecord& gate, Nanos now, bool waits) = 0;
  virtual void Idle(GateRecord& gate, Nanos now, Nanos since) = 0;
  virtual void Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) = 0;

  // The process must stand still, or need not any more: GateRecord::held.
  virtual void Hold(GateRecord& gate, bool held, Nanos now) = 0;

  // The process made or lost channels, or more or less is known of them: this stops it from now on.
  virtual void ChannelsChanged(GateRecord& gate, GateRecord::Stop stop, Nanos) { gate.stop = stop; }
  // These vGPUs stand still from now on, whatever else is decided, and no others for this reason.
  virtual void SetAside(const std::set<Id>&, Nanos) {}
  // The MPS servers of spaces may be others, or have other channels.
  virtual void LeadersChanged(Nanos) {}

  virtual void Advance(Nanos now) = 0;
  virtual Deadline NextDeadline() const = 0;
  virtual void Seal() { sealed_ = true; }  // from now on no gate changes

  virtual State StateOf(Id vgpu) const = 0;
  virtual sched::Usage UsageOf(Id vgpu, Nanos now) const = 0;
  // Counts from anywhere.
  virtual SpaceTime TimeOf(std::uint32_t /*space*/, Nanos now) const { return {now, now}; }

 protected:
  bool Sealed() const { return sealed_; }

 private:
  bool sealed_ = false;
};

}  // namespace tessera::server
