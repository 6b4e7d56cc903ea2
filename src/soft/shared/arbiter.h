#pragma once

#include <cstdint>

#include "base/clock.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// One context's claim to execute kernels on one device. Only one context of all processes executes at a time; those
// that wait take turns, and the running one must hand over at the end of its slice if another waits. A process that
// dies while it executes is replaced within kDeathCheck. Copies do not need the device.
//
// Time is modelled: a kernel lasts as long as its instructions take at the speed of the device, however fast the host
// ran them, so that what tests see does not depend on the host's load. Where the host lags all the same, the device is
// slower for that while, and the lag is billed to who had it. One thread at a time may use an Arbiter.
class Arbiter {
 public:
  static constexpr Nanos kDeathCheck = 20 * kMillisecond;

  Arbiter(SharedState& state, int device) : state_(state), device_(device) {}
  ~Arbiter() { Release(); }
  Arbiter(const Arbiter&) = delete;

  // Waits for the turn. No-op if held.
  void Acquire();
  // Another context waits and the slice is over (or this process was frozen).
  bool ShouldYield() const;
  // Hands over and waits for the next turn. Waits for the modelled end first.
  void Yield();
  // Waits for the modelled end, then lets the next one execute. No-op if not held.
  void Release();

  // The instructions that were executed since the last call: bills their time to the process and, when it is
  // further ahead of the modelled time than a timer is precise, waits. Only while held.
  void Charge(std::uint64_t instructions);
  // Waits until what was charged has ended in modelled time: the moment at which a kernel completes.
  void WaitForEnd();
  // When what was charged ends.
  Nanos end() const { return end_; }

 private:
  void Leave();
  // Moves end_ and bills the time up to there.
  void ExtendTo(Nanos end);

  SharedState& state_;
  const int device_;
  int turn_ = -1;         // index into SharedDevice::turns while held
  Nanos end_ = 0;         // modelled end of what was charged
  double remainder_ = 0;  // fraction of a nanosecond not yet billed
};

// Lets the next context execute on the device if none does: after a process was frozen or thawed.
void GrantNext(SharedLayout& layout, int device);

}  // namespace tessera::soft
