#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "shim/gate/gate.h"
#include "shim/gate/markers.h"

namespace tessera::shim {

// The gates of all contexts of one GPU, and what their markers tell of the work in them. Not thread-safe: the keeper's
// mutex guards it. Placing and observing markers changes the calling thread's current context.
class ContextGates {
 public:
  // The gate of a context, made closed at its first use.
  Gate* Of(cuda::CUcontext context, GateKeeper& keeper, const std::atomic<std::uint32_t>& epoch);
  // The context and all that ran in it are gone.
  void Forget(cuda::CUcontext context);
  // The gates of the contexts that there are.
  const std::vector<Gate*>& All() const { return gates_; }
  // The watch of a context if it waits for the context's work, or null.
  const EndWatch* PendingWatch(cuda::CUcontext context) const;

  void CloseAll();
  // All work is to be in this context from now on: the other gates are marked as left.
  void GoOnIn(cuda::CUcontext context, GateKeeper& keeper, const std::atomic<std::uint32_t>& epoch);
  // All gates compare with this epoch from now on, and are closed.
  void Follow(const std::atomic<std::uint32_t>& epoch);
  // All windows forget what they have learned, and all gates are closed.
  void Relearn();

  // Looks which markers were reached. `target` is as in Markers::Observe. Returns the latest Markers::YoungestReached.
  Nanos Observe(Nanos now, Nanos target);
  // Places a marker where work was submitted since the last one.
  void Cover(Nanos now, bool learn);
  // Places a marker in each context. Where the driver has none, a thread of each context waits for its work.
  void MarkAll(Nanos now);

  std::int64_t Submitted() const;
  bool AnyPending() const;
  // Whether all work has ended, as far as markers tell.
  bool Drained() const;
  // The same, and it is sure for all work.
  bool SurelyDrained() const;
  // When the last marker was reached, but not before `earliest`.
  Nanos LastReached(Nanos earliest) const;

 private:
  std::vector<Gate*> gates_;
  std::vector<Gate*> spare_;  // of contexts that ended
};

// Waits until all work has ended, for two seconds of `clock` at most. False: it is not known to have. Guarded as the
// gates; `target` is as in Markers::Observe.
bool AwaitEnds(ContextGates& gates, Nanos (*clock)(), Nanos target);

}  // namespace tessera::shim
