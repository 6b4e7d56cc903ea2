#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sched/token_scheduler.h"
#include "server/histogram.h"
#include "server/shared_page.h"

namespace tessera::server {

// The gate of one process on one GPU, as the daemon knows it. docs/protocol.md tells the conversation.
struct Gate {
  enum class State {
    kParked,    // nothing queued: its next submission sends Wants
    kWanting,   // a submission waits at the closed gate
    kRunning,   // open, and there is work
    kDraining,  // closed, but what it had queued runs: Released is awaited
  };
  explicit Gate(SharedPage& page, pid_t pid = 0) : page(page), pid(pid) {}
  SharedPage& page;
  const pid_t pid;
  // A submission waits at it from now on, or its work runs.
  void Wants(Nanos now) {
    if (state != State::kWanting) wants_since = now;
    state = State::kWanting;
  }
  void Runs(Nanos now) {
    if (waits && state != State::kRunning) waits->Note(state == State::kWanting ? now - wants_since : 0);
    state = State::kRunning;
  }
  State state = State::kParked;
  Nanos wants_since = 0;
  Histogram* waits = nullptr;       // its vGPU's, of waits for the GPU's time
  bool held = false;                // frozen by an operator, or for memory: it takes no part
  bool ungated = false;             // nobody waits at it: the program has no shim
  std::uint32_t closing_epoch = 0;  // of the order that closed it before kDraining
  Nanos opened_at = 0;
  Nanos slice = 0;  // of its channels, as last ordered; 0: the driver's default
  // Of its vGPU at the server that it joined; null before Join and after the vGPU is gone.
  struct Turn* turn = nullptr;
  struct SteeredTurn* steered = nullptr;
};

// What keeps a vGPU with work from its GPU.
enum class WaitReason : std::uint8_t {
  kNone,
  kTurn,   // somebody else has the token
  kLimit,  // it has had what its limit permits
  kClass,  // a higher class has work
};

// Shares the time of one GPU among the vGPUs on it: decides by a scheduler of src/sched, and acts on the gates of the
// processes or on their channels. One of two serves a GPU at a time: TokenServer or SteeringServer.
class TimeServer {
 public:
  using Id = sched::VgpuId;
  enum class Standing { kIdle, kWaiting, kRunning };

  virtual ~TimeServer() = default;

  virtual Result<void> Add(Id vgpu, const sched::Shares& shares, Nanos now) = 0;
  virtual Result<void> Update(Id vgpu, const sched::Shares& shares, Nanos now) = 0;
  // Closes the gates that are left, for good.
  virtual void Remove(Id vgpu, Nanos now) = 0;

  virtual void Join(Id vgpu, Gate& gate, Nanos now) = 0;
  virtual void Leave(Gate& gate, Nanos now) = 0;  // also a process that died, in any state
  // Gives all gates up, closed, for another server to take them over: a process that runs drains, and asks again.
  virtual void Abandon(Nanos now) = 0;

  // What a process says. Nonsense is ignored, times are clipped to what can be true. `waits`: a submission waits for
  // an order; else work is on its way already.
  virtual void Wants(Gate& gate, Nanos now, bool waits) = 0;
  virtual void Idle(Gate& gate, Nanos now, Nanos since) = 0;
  virtual void Released(Gate& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) = 0;

  // Somebody froze the process, or let it go: Gate::held.
  virtual void Hold(Gate& gate, bool held, Nanos now) = 0;

  // The process made or lost channels.
  virtual void ChannelsChanged(Gate&, Nanos) {}

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
