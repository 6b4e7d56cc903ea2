#pragma once

#include <cstdint>

#include "base/clock.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// One context's claim to execute kernels on one device. Only one context of all processes executes at a time; those
// that wait take turns, and the running one must hand over at the end of its slice if another waits. A process that
// dies while it executes is replaced within kDeathCheck. Copies do not need the device.
//
// All contexts of the clients of one MPS server are one in this: they have their turn, with one slice, together, and
// execute at the same time. Each runs as fast as alone as long as their kernels do not keep more multiprocessors busy
// than there are; beyond that all of them are slower by the same factor.
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

  // The device that the next turn is on: a process may have moved. No-op while a turn is held.
  void UseDevice(int device);
  // The multiprocessors that the next kernel keeps busy, at least 1; all of them until told. It matters to clients of
  // MPS only.
  void Use(std::uint32_t multiprocessors);
  // Waits for the turn. No-op if held. Returns without it only to a client of MPS that was ended (EndedByMps).
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
  // Takes the multiprocessors of clients of the same MPS server that have died, every kDeathCheck. Only while held.
  void LookForDeadClients();
  // Moves end_ and bills the time up to there.
  void ExtendTo(Nanos end);

  SharedState& state_;
  int device_;
  std::uint32_t multiprocessors_ = state_.spec().multiprocessors;
  int turn_ = -1;         // index into SharedDevice::turns while held
  Nanos end_ = 0;         // modelled end of what was charged
  Nanos looked_ = 0;      // for dead clients
  double remainder_ = 0;  // fraction of a nanosecond not yet billed
};

// A context of this process executes on the device or waits for that.
bool HasTurns(SharedState& state, int device);

// Lets the next context execute on the device if none does: after a process was frozen or thawed.
void GrantNext(SharedLayout& layout, int device);

}  // namespace tessera::soft
