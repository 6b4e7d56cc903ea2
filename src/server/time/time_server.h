#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sched/tokens/token_scheduler.h"
#include "server/model/gate_record.h"
#include "server/model/standing_log.h"

namespace tessera::server {

// Shares the time of one GPU among the vGPUs on it: decides by a scheduler of src/sched, and acts on the gates of the
// processes or on their channels. One of two serves a GPU at a time: TokenServer or SteeringServer.
class TimeServer {
 public:
  using Id = sched::VgpuId;

  virtual ~TimeServer() = default;

  virtual Result<void> Add(Id vgpu, const sched::Shares& shares, Nanos now) = 0;
  virtual Result<void> Update(Id vgpu, const sched::Shares& shares, Nanos now) = 0;
  // Closes the gates that are left, for good.
  virtual void Remove(Id vgpu, Nanos now) = 0;

  virtual void Join(Id vgpu, GateRecord& gate, Nanos now) = 0;
  virtual void Leave(GateRecord& gate, Nanos now) = 0;  // also a process that died, in any state
  // Gives all gates up, closed, for another server to take them over: a process that runs drains, and asks again.
  virtual void Abandon(Nanos now) = 0;

  // What a process says. Nonsense is ignored, times are clipped to what can be true. `waits`: a submission waits for
  // an order; else work is on its way already.
  virtual void Wants(GateRecord& gate, Nanos now, bool waits) = 0;
  virtual void Idle(GateRecord& gate, Nanos now, Nanos since) = 0;
  virtual void Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) = 0;

  // Somebody froze the process, or let it go: GateRecord::held.
  virtual void Hold(GateRecord& gate, bool held, Nanos now) = 0;

  // The process made or lost channels.
  virtual void ChannelsChanged(GateRecord&, Nanos) {}

  virtual void Advance(Nanos now) = 0;
  virtual void Seal() = 0;  // from now on no gate changes
  virtual Nanos NextDeadline() const = 0;

  virtual Standing StandingOf(Id vgpu) const = 0;    // kIdle: also one that is gone
  virtual WaitReason WhyWaiting(Id vgpu) const = 0;  // where it stands waiting
  virtual Nanos SliceOf(Id) const { return 0; }      // of all its processes together; 0: the driver's default
  virtual sched::Usage UsageOf(Id vgpu, Nanos now) const = 0;
  virtual std::optional<Id> Holder() const = 0;  // who runs, if it is one
  virtual bool AnyRunning() const = 0;
  // The news that an idle process has work again is worth looking for without a pause.
  virtual bool Urgent() const { return false; }
};

}  // namespace tessera::server
