// Markers: words that the GPU writes when it reaches them, so that the end of work is seen by reading host memory.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "shim/gate.h"
#include "shim/window.h"

namespace tessera::shim {

// The markers of one context. Not thread-safe: its attachment's mutex guards it. A marker costs one stream write
// (about 2 µs); none is placed while any stream of the process captures, where it would become part of the graph.
class Markers {
 public:
  explicit Markers(Gate& gate) : gate_(gate) {}

  // Places a marker behind what `stream` was given so far. The calling thread's current context must be the gate's.
  // `learn`: the window bounds the queue now, so how long the GPU takes to get there says something about it.
  void Place(cuda::CUstream stream, Nanos now, bool learn);

  // Places one on every stream that was used, so that all work so far is covered. The same requirement. `own_thread`:
  // called by a thread that submits itself, so that its per-thread default stream is the one meant.
  void PlaceOnAll(Nanos now, bool learn, bool own_thread);

  // Looks which markers were reached, and lets the window learn from them.
  void Observe(Nanos now, Nanos target);

  // Takes what was marked as reached: the context has failed, and its GPU will write no word any more.
  void GiveUp(Nanos now);

  // All submissions are covered by markers / and all of these were reached.
  bool Covered() const { return covered_ == gate_.Submitted(); }
  bool Drained() const { return first_ == next_ && Covered(); }

  // Submissions that may still be unfinished, as far as markers tell.
  std::int64_t InFlight() const { return gate_.Submitted() - finished_; }
  std::int64_t Window() const { return window_.Size(); }
  std::int64_t SinceLastMarker() const { return gate_.Submitted() - last_count_; }
  bool AnyPending() const { return first_ != next_; }
  bool PendingSince(Nanos then) const { return AnyPending() && ring_[first_ % kRing].submitted <= then; }
  void NoteLimited() { limited_ = true; }

  // When the last marker that was reached was seen.
  Nanos LastReached() const { return last_reached_; }
  // When the youngest one that was reached was placed, at the earliest.
  Nanos YoungestReached() const { return youngest_reached_; }

  // Whether `stream` was given work, as far as that is still known.
  bool Uses(cuda::CUstream stream) const;
  // Forgets a stream that is being destroyed.
  void ForgetStream(cuda::CUstream stream);
  void ForgetStreams();

  // The context is gone, and with it the words and all work.
  void Reset();

 private:
  struct Marker {
    std::uint32_t word;  // value that the GPU writes
    std::int64_t count;  // submissions before it
    Nanos submitted;
    bool learn;
  };
  static constexpr unsigned kRing = 64;

  bool Prepare();
  bool Write(cuda::CUstream stream, Nanos now, std::int64_t count, bool learn);
  bool OnlyStream(cuda::CUstream stream) const;

  Gate& gate_;
  volatile std::uint32_t* words_ = nullptr;  // pinned, one per ring place, owned by the context
  bool unusable_ = false;                    // the driver refuses: work is then taken as finished when submitted
  Marker ring_[kRing];
  unsigned first_ = 0, next_ = 0;  // pending markers, modulo kRing
  std::int64_t covered_ = 0;       // submissions before the last covering set
  std::int64_t finished_ = 0;      // submissions that every marker up to here says are done
  std::int64_t last_count_ = 0;    // submissions before the last marker
  Nanos last_reached_ = 0;
  Nanos youngest_reached_ = 0;
  bool limited_ = false;  // the window held a submission back since the last marker
  shim::Window window_;
};

}  // namespace tessera::shim
