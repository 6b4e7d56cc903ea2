// Markers: events behind all work that a context was given, so that its end is seen without waiting for it.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "shim/gate/gate.h"
#include "shim/gate/window.h"

namespace tessera::shim {

// The markers of one context. Not thread-safe: the gate keeper's mutex guards it. Its context must be the calling
// thread's current one when a marker is placed or observed.
//
// A marker is a cuCtxRecordEvent (driver 555 and newer). It covers every stream of the context, also those that the
// shim never saw and those that were destroyed, and blocks none. Placing one costs 0.3 to 1.5 µs, and so does a look at
// it (docs/hardware-log.md). While a stream of the context captures, the driver refuses a marker and ends the capture:
// so none is placed while any stream of the process captures.
class Markers {
 public:
  explicit Markers(Gate& gate) : gate_(gate) {}

  // Places a marker behind all work so far. `learn`: the window bounds the queue now, so it can learn from the time
  // until the GPU reaches the marker.
  void Place(Nanos now, bool learn);

  // Looks which markers were reached, and lets the window learn from them. `target`: see Window.
  void Observe(Nanos now, Nanos target);

  // Whether a marker is behind all submissions; and whether all markers were reached.
  bool Covered() const { return last_count_ == gate_.Submitted(); }
  bool Drained() const { return !AnyPending() && Covered(); }
  // Whether the driver has such events. Where it has none, work counts as ended when it is submitted.
  bool Tell() const { return !unusable_; }

  // Submissions that may still be unfinished, as far as markers tell.
  std::int64_t InFlight() const { return gate_.Submitted() - finished_; }
  std::int64_t Window() const { return window_.Size(); }
  std::int64_t SinceLastMarker() const { return gate_.Submitted() - last_count_; }
  bool AnyPending() const { return first_ != next_; }
  void NoteLimited() { limited_ = true; }
  // The window forgets what it has learned.
  void Relearn() { window_.Restart(); }

  // When the last marker that was reached was seen.
  Nanos LastReached() const { return last_reached_; }
  // The youngest work that is known to have ended was submitted then, or later. A marker that was reached proves this
  // only if there was work before it: behind work that had ended, the driver reports it as reached at once, even if the
  // GPU can execute nothing more.
  Nanos YoungestReached() const { return youngest_reached_; }

  // The context is gone, and with it the events and all work.
  void Reset();

 private:
  struct Marker {
    cuda::CUevent event;  // made at the place's first use, owned by the context
    std::int64_t count;   // submissions before it
    Nanos submitted;
    Nanos work_since;  // some of the work before it was submitted after that; 0: none since the marker before it
    bool learn;
  };
  static constexpr unsigned kRing = 64;

  bool Record(Marker& marker);

  Gate& gate_;
  bool unusable_ = false;  // the driver has no such events
  Marker ring_[kRing] = {};
  unsigned first_ = 0, next_ = 0;  // pending markers, modulo kRing
  std::int64_t finished_ = 0;      // submissions that every marker up to here says are done
  std::int64_t last_count_ = 0;    // submissions before the last marker
  Nanos last_placed_ = 0;
  Nanos last_reached_ = 0;
  Nanos youngest_reached_ = 0;
  bool limited_ = false;  // the window held a submission back since the last marker
  shim::Window window_;
};

}  // namespace tessera::shim
