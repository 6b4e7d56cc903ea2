// Decides when a process may submit work to one GPU, as the daemon orders. It follows docs/protocol.md ("The gate"),
// which also defines "parked".
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "shim/gate/call_count.h"
#include "shim/gate/context_gates.h"
#include "shim/gate/end_watch.h"
#include "shim/gate/gate.h"
#include "shim/gate/host_memory.h"
#include "shim/session/followed_page.h"
#include "wire/page.h"

namespace tessera::shim {

// The keeper of the gates of one GPU's contexts. It lets submissions pass as the page orders, tells the daemon when
// work comes and when it has ended, and is parked in between. Never destroyed. Any thread.
class GateKeeper {
 public:
  // `clock` tells the time (MonotonicNow); it is asked with the mutex held.
  GateKeeper(FollowedPage& page, HostMemory& host, Nanos (*clock)() = MonotonicNow)
      : clock_(clock), page_(page), host_(host), calls_(page) {}
  GateKeeper(const GateKeeper&) = delete;

  // Called on the thread that submits, when its trampoline could not pass: waits for the token or for room in the
  // window, then lets this submission pass, and perhaps some after it. False: it must not be made (page.Removed()). Of
  // a context that the work has left, nothing passes, and the answer is true at once: the caller looks where it is now.
  bool Enter(Gate& gate);

  // Before and after the program waits for its work: the end of it is then seen at once.
  void BeforeSync(Gate& gate);
  void AfterSync(Gate& gate);
  CallCount& Calls() { return calls_; }

  // From now on each submission comes to Enter, also while the gate is open; or (false) not any more.
  void SeeEach(bool each);

  // The gate of a context, made at its first use.
  Gate* GateOf(cuda::CUcontext context);
  // Runs `end`, which may destroy the context and says whether it did, while no thread of the shim uses it. `may_end`
  // is false where it surely does not: then no thread's wait for the context's work is waited for.
  template <typename End>
  void EndContext(cuda::CUcontext context, bool may_end, End&& end) {
    MutexLock lock(mutex_);
    // A child of a fork has stopped: nobody waits there. Outside of the mutex: it takes as long as the work.
    while (const EndWatch* watch = may_end && !stopped_ ? gates_.PendingWatch(context) : nullptr) {
      lock.Unlock();
      watch->Await();
      lock.Lock();
    }
    if (end()) gates_.Forget(context);
  }
  // Runs `change` while no thread places a marker, or begins to wait for work, if a capture was counted before.
  template <typename Change>
  void WithoutMarkers(Change&& change) {
    const MutexLock lock(mutex_);
    for (const Gate* gate : gates_.All()) gate->watch->Settle();
    change();
  }

  // Runs `act`, which calls the driver, unless the process ends. Stop waits for it.
  template <typename Act>
  void WhileItRuns(Act&& act) {
    const MutexLock lock(mutex_);
    if (!stopped_) act();
  }

  // Runs `change` while no submission passes, when all work has ended. It returns the context in which the work goes
  // on, or null if that stays where it is. False: it does not end within two seconds (it may wait for a submission), or
  // a stream captures, so that nobody can tell. A thread that is between its gate and its call when this begins has a
  // millisecond to get there.
  template <typename Change>
  bool WithoutWork(Change&& change) {
    const MutexLock lock(mutex_);
    gates_.CloseAll();
    if (!AwaitEnds(gates_, clock_, Target(page_->gate.load(std::memory_order_relaxed)))) return false;
    if (const cuda::CUcontext context = change()) gates_.GoOnIn(context, *this, page_->epoch);
    return true;
  }

  // The pacer's look at the work and the order. Returns how long the next look can wait; nothing: Stop was called.
  std::optional<Nanos> Look();

  // Runs `attach` while no submission passes, because the new daemon would not know of it. `attach` tells that daemon
  // whether work is under way, and follows its page. False, as `attach` returns: the daemon has no page for this GPU.
  template <typename Attach>
  bool Reattach(Attach&& attach) {
    const MutexLock lock(mutex_);
    gates_.CloseAll();
    const bool works = !parked_ && !gates_.Drained();
    if (!attach(works)) return false;
    gates_.Follow(page_->epoch);
    if (!works) Park(clock_());
    return true;
  }
  // Runs `change`, which follows the process's own page, with a gate that is closed for good (`block`) or open for
  // good. False, as `change` returns: the page is the same as before.
  template <typename Change>
  bool GoOnAlone(bool block, Change&& change) {
    const MutexLock lock(mutex_);
    if (!change()) return false;
    gates_.Follow(page_->epoch);
    block ? Park(clock_()) : Unpark(clock_());
    return true;
  }

  // The process ends: the driver is not called any more, and every submission passes.
  void Stop();
  bool Runs() {
    const MutexLock lock(mutex_);
    return !stopped_;
  }
  void AbandonAfterFork();

 private:
  enum class Passage { kPasses, kFull, kClosed };
  // State of a thread that waits at the gate: since when it has found the gate closed and the window full (0: not), and
  // the doorbell before it read the order.
  struct Waiting {
    Nanos closed_since = 0, full_since = 0;
    std::uint32_t bell = 0;
  };

  Passage Try(Gate& gate, Waiting& waiting, Nanos now) TESSERA_REQUIRES(mutex_);
  Passage TryOpen(Gate& gate, wire::GateOrder order, Waiting& waiting, Nanos now) TESSERA_REQUIRES(mutex_);
  Passage TryClosed(Gate& gate, wire::GateOrder order, std::uint32_t epoch, Waiting& waiting, Nanos now)
      TESSERA_REQUIRES(mutex_);
  void NoteMoves() TESSERA_REQUIRES(mutex_);
  // Also where memory has gone to the host: for the memory that each submission uses.
  bool SeesEach() const TESSERA_REQUIRES(mutex_) { return see_each_ || host_.Any(); }
  static bool Stuck(const Gate& gate, Nanos since, Nanos now);

  // Whether the queue is kept short under the order, and below what time.
  bool Bounds(wire::GateOrder order) const;
  Nanos Target(wire::GateOrder order) const;
  bool WatchesEnds() const;

  Nanos Tick(Nanos now) TESSERA_REQUIRES(mutex_);
  Nanos TickClosed(wire::GateOrder order, std::uint32_t epoch, Nanos now) TESSERA_REQUIRES(mutex_);
  Nanos TickOpen(wire::GateOrder order, Nanos now) TESSERA_REQUIRES(mutex_);
  Nanos LookWhileParked(Nanos now) TESSERA_REQUIRES(mutex_);
  void ObserveAll(Nanos now) TESSERA_REQUIRES(mutex_);
  void ReportReached(Nanos youngest) TESSERA_REQUIRES(mutex_);
  void Park(Nanos now) TESSERA_REQUIRES(mutex_);
  void Unpark(Nanos now) TESSERA_REQUIRES(mutex_);

  Nanos (*const clock_)();
  FollowedPage& page_;
  HostMemory& host_;
  CallCount calls_;

  // Taken before FollowedPage::holding and Session's.
  ForkMutex mutex_;
  ContextGates gates_ TESSERA_GUARDED_BY(mutex_);
  bool stopped_ TESSERA_GUARDED_BY(mutex_) = false;
  bool see_each_ TESSERA_GUARDED_BY(mutex_) = false;
  bool parked_ TESSERA_GUARDED_BY(mutex_) = true;
  Nanos parked_look_ TESSERA_GUARDED_BY(mutex_) = 0;  // when the pacer looks, or looked, for work that escaped it
  bool marked_ TESSERA_GUARDED_BY(mutex_) = false;    // that look has marked all work, some of which had not ended
  bool wants_sent_ TESSERA_GUARDED_BY(mutex_) = false;
  std::uint32_t wants_epoch_ TESSERA_GUARDED_BY(mutex_) = 0;    // the epoch when Wants was sent
  std::int64_t tick_submitted_ TESSERA_GUARDED_BY(mutex_) = 0;  // submissions at the pacer's last tick
  Nanos active_since_ TESSERA_GUARDED_BY(mutex_) = 0;           // when work began after the last idle time; 0: idle
  Nanos last_activity_ TESSERA_GUARDED_BY(mutex_) = 0;
  Nanos busy_ TESSERA_GUARDED_BY(mutex_) = 0;  // while active, before active_since_
};

}  // namespace tessera::shim
