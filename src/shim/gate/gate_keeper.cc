#include "shim/gate/gate_keeper.h"

#include <time.h>

#include <algorithm>

#include "base/processor/processor.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"

namespace tessera::shim {

using namespace cuda;

namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

// How often the pacer looks while work runs. Others wait for the first two, so these are short.
constexpr Nanos kDrainTick = 50 * kMicrosecond;
constexpr Nanos kBoundedTick = 250 * kMicrosecond;
constexpr Nanos kOpenTick = 5 * kMillisecond;
// Parts of the idle grace in which the pacer looks where the gate is free and the daemon wants to know soon.
constexpr Nanos kLooksInGrace = 4;
// A process without work looks this often whether the daemon is still there: a new one must learn what it holds. It
// also looks whether it is really without work, first after a moment: a process that has work when its memory is
// brought out would wait for good.
constexpr Nanos kParkedTick = kSecond;
constexpr Nanos kFirstLook = 10 * kMillisecond;
// A marker behind work that has ended is reached within this time, even if the channels stand still.
constexpr Nanos kAtOnce = 50 * kMillisecond;
// If no work ends for this long, it may be waiting for a submission that the gate holds back.
constexpr Nanos kStuck = 500 * kMillisecond;
// A waiting thread looks at the order this long before it sleeps: the daemon often answers sooner than a wake-up takes.
constexpr Nanos kSpin = 100 * kMicrosecond;
// How often a thread looks again whether the window has room: the GPU has up to the window's time of work left.
constexpr Nanos kFullSleep = 20 * kMicrosecond;
// Bound on the queued work while kernels reach memory over the bus and the order sets no bound.
constexpr Nanos kHostWindow = 2 * kMillisecond;

void Sleep(Nanos time) {
  const timespec t{.tv_sec = 0, .tv_nsec = time};
  nanosleep(&t, nullptr);
}

void AwaitRing(const FollowedPage& page, std::uint32_t seen) {
  const Nanos spin_until = MonotonicNow() + kSpin;
  while (page.Bell() == seen && MonotonicNow() < spin_until) Pause();
  page.WaitForRing(seen, kReconnectEvery);
}

// Lets the calling thread's submission pass and, as far as the window allows and unless each one is `seen`, some after
// it. False: the window is full. The keeper's mutex is held.
bool Fill(Gate& gate, bool bounded, bool seen) {
  std::int64_t budget = kUnlimited;
  Markers& markers = *gate.markers;
  if (bounded) {
    const std::int64_t window = markers.Window();
    const std::int64_t room = window - markers.InFlight();
    if (room <= 0) {
      markers.NoteLimited();
      return false;
    }
    budget = std::min(room, std::max<std::int64_t>(1, window / 2));
    if (budget < window / 2) markers.NoteLimited();
  }
  gate.Give(seen ? 1 : budget);
  return true;
}

}  // namespace

// ---- submissions ----

bool GateKeeper::Enter(Gate& gate) {
  for (Waiting waiting;;) {
    if (page_.Removed()) return false;
    Passage passage;
    {
      const MutexLock lock(mutex_);
      if (stopped_ || gate.left) return true;
      passage = Try(gate, waiting, clock_());
    }
    switch (passage) {
      case Passage::kPasses:
        return true;
      case Passage::kFull:
        Sleep(kFullSleep);
        break;
      case Passage::kClosed:
        AwaitRing(page_, waiting.bell);
        DaemonWatch::Instance().Mind(MonotonicNow());
    }
  }
}

GateKeeper::Passage GateKeeper::Try(Gate& gate, Waiting& waiting, Nanos now) {
  waiting.bell = page_.Bell();
  const std::uint32_t epoch = page_->epoch.load(std::memory_order_acquire);
  const wire::GateOrder order = page_->gate.load(std::memory_order_acquire);
  NoteMoves();
  const bool granted = !wire::IsClosed(order) && wants_sent_ && epoch != wants_epoch_;
  if (parked_ && (granted || order == wire::GateOrder::kFree)) {
    // At a free gate the program asks for nothing: the daemon only learns that there is work. If it cannot be told, the
    // pacer notices that it is gone, and the next daemon is told everything.
    if (!granted) Session::Instance().Tell(wire::Make(wire::Wants{.waits = 0}, page_.Gpu()));
    Unpark(now);
    page_.Ring();  // the pacer has work again
  }
  if (parked_ || wire::IsClosed(order)) return TryClosed(gate, order, epoch, waiting, now);
  const Passage passage = TryOpen(gate, order, waiting, now);
  if (passage == Passage::kPasses) gate.accepted.store(epoch, std::memory_order_release);
  return passage;
}

GateKeeper::Passage GateKeeper::TryOpen(Gate& gate, wire::GateOrder order, Waiting& waiting, Nanos now) {
  const bool bounded = Bounds(order);
  if (bounded) {
    gate.markers->Observe(now, Target(order));
    // Here every submission comes by, and a marker behind each would be too many.
    const std::int64_t every = SeesEach() ? std::max<std::int64_t>(1, gate.markers->Window() / 2) : 1;
    if (gate.markers->SinceLastMarker() >= every && waiting.closed_since == 0 && waiting.full_since == 0)
      gate.markers->Place(now, true);
    page_->window.store(gate.markers->Window(), std::memory_order_relaxed);
  }
  if (!Fill(gate, bounded, SeesEach())) {
    if (waiting.full_since == 0) waiting.full_since = now;
    if (!Stuck(gate, waiting.full_since, now)) return Passage::kFull;
    gate.Give(see_each_ ? 1 : gate.markers->Window());
  }
  if (waiting.closed_since != 0) page_->gate_wait_ns.fetch_add(now - waiting.closed_since, std::memory_order_relaxed);
  return Passage::kPasses;
}

GateKeeper::Passage GateKeeper::TryClosed(Gate& gate, wire::GateOrder order, std::uint32_t epoch, Waiting& waiting,
                                          Nanos now) {
  if (waiting.closed_since == 0) {
    waiting.closed_since = now;
    page_->gate_waits.fetch_add(1, std::memory_order_relaxed);
  }
  // Lets one submission pass. Its time is billed as overrun, because the work did not drain when the gate closed.
  if (!parked_ && order != wire::GateOrder::kStopped && Stuck(gate, waiting.closed_since, now)) {
    gate.Give(1);
    page_->gate_wait_ns.fetch_add(now - waiting.closed_since, std::memory_order_relaxed);
    return Passage::kPasses;
  }
  // A later order that is closed: the token came and went before this thread woke up, so it is asked for again.
  if (parked_ && (!wants_sent_ || epoch != wants_epoch_)) {
    wants_epoch_ = epoch;
    // If it could not be sent: again after the caller's wait.
    wants_sent_ = Session::Instance().Tell(wire::Make(wire::Wants{}, page_.Gpu()));
  }
  return Passage::kClosed;
}

// Work on memory that has gone to the host may take a hundred times as long, so what the windows learned is worthless.
// From now on each submission goes through Enter.
void GateKeeper::NoteMoves() {
  if (host_.TakeMoreOut()) gates_.Relearn();
}

// The queue is short where a closing gate waits for its end: under a bound, and when many submissions would read over
// the bus. At a free gate the channels are steered: a freeze stops running work, and nothing waits for its end.
bool GateKeeper::Bounds(wire::GateOrder order) const {
  return order == wire::GateOrder::kBounded || (order == wire::GateOrder::kOpen && host_.Any());
}

Nanos GateKeeper::Target(wire::GateOrder order) const {
  return order == wire::GateOrder::kOpen ? kHostWindow : page_->window_ns.load(std::memory_order_relaxed);
}

bool GateKeeper::Stuck(const Gate& gate, Nanos since, Nanos now) {
  return since != 0 && now - std::max(since, gate.markers->LastReached()) > kStuck;
}

// ---- waiting for work, contexts ----

// The ends of work matter at once only while the queue is bounded.
bool GateKeeper::WatchesEnds() const {
  const wire::GateOrder order = page_->gate.load(std::memory_order_relaxed);
  return wire::IsClosed(order) || Bounds(order);
}

void GateKeeper::BeforeSync(Gate& gate) {
  if (!WatchesEnds()) return;
  const MutexLock lock(mutex_);
  if (!stopped_ && !parked_ && !gate.markers->Covered()) gate.markers->Place(clock_(), true);
}

void GateKeeper::AfterSync(Gate& gate) {
  if (!WatchesEnds()) return;
  const MutexLock lock(mutex_);
  if (stopped_ || parked_) return;
  gate.markers->Observe(clock_(), Target(page_->gate.load(std::memory_order_relaxed)));
  ReportReached(gate.markers->YoungestReached());
}

void GateKeeper::SeeEach(bool each) {
  const MutexLock lock(mutex_);
  see_each_ = each;
  if (each) gates_.CloseAll();
}

Gate* GateKeeper::GateOf(CUcontext context) {
  const MutexLock lock(mutex_);
  return gates_.Of(context, *this, page_->epoch);
}

// ---- the pacer's looks ----

std::optional<Nanos> GateKeeper::Look() {
  const MutexLock lock(mutex_);
  if (stopped_) return std::nullopt;
  return Tick(clock_());
}

Nanos GateKeeper::Tick(Nanos now) {
  if (parked_) return LookWhileParked(now);
  NoteMoves();
  const std::uint32_t epoch = page_->epoch.load(std::memory_order_acquire);
  const wire::GateOrder order = page_->gate.load(std::memory_order_acquire);
  ObserveAll(now);
  return wire::IsClosed(order) ? TickClosed(order, epoch, now) : TickOpen(order, now);
}

// The work that passed is to end; then the token goes back.
Nanos GateKeeper::TickClosed(wire::GateOrder order, std::uint32_t epoch, Nanos now) {
  gates_.CloseAll();
  gates_.Cover(now, false);
  if (!gates_.Drained())
    return order == wire::GateOrder::kStopped ? kOpenTick : kDrainTick;  // nothing ends while all stands
  const Nanos ended = gates_.LastReached(active_since_);
  Park(now);
  Session::Instance().Tell(wire::Make(wire::Released{.drained_at = ended, .epoch = epoch}, page_.Gpu()));
  page_.Ring();  // threads that wait at the gate ask again
  return kFirstLook;
}

// Without work for the time of grace, the token goes back by itself.
Nanos GateKeeper::TickOpen(wire::GateOrder order, Nanos now) {
  const std::int64_t submitted = gates_.Submitted();
  const Nanos grace = page_->idle_grace_ns.load(std::memory_order_relaxed);
  Nanos tick = Bounds(order) ? kBoundedTick : kOpenTick;
  if (order == wire::GateOrder::kFree && grace < kOpenTick) tick = std::max(grace / kLooksInGrace, kBoundedTick);
  if (submitted != tick_submitted_) {
    tick_submitted_ = submitted;
    last_activity_ = now;
    page_->submissions.store(submitted, std::memory_order_relaxed);
    page_->busy_ns.store(static_cast<std::uint64_t>(busy_ + now - active_since_), std::memory_order_relaxed);
    return tick;
  }
  gates_.Cover(now, Bounds(order));
  if (!gates_.Drained()) return tick;
  const Nanos ended = gates_.LastReached(active_since_);
  if (now - std::max(ended, last_activity_) < grace) return tick;
  gates_.CloseAll();
  if (gates_.Submitted() != submitted) return tick;  // some submission passed just before the gate closed
  Park(now);
  Session::Instance().Tell(wire::Make(wire::Idle{.since = ended}, page_.Gpu()));
  page_.Ring();
  return kFirstLook;
}

// Finds work that escaped the markers: a submission that passed the gate in time but reached the driver after the
// marker that should have been behind it, or work before a capture, during which there are no markers. The daemon is
// told as for work that passes a free gate.
Nanos GateKeeper::LookWhileParked(Nanos now) {
  ObserveAll(now);
  if (gates_.AnyPending()) {
    if (now < parked_look_ + kAtOnce) return kOpenTick;
    Session::Instance().Tell(wire::Make(wire::Wants{.waits = 0}, page_.Gpu()));
    Unpark(now);
    return kOpenTick;
  }
  if (now < parked_look_) return parked_look_ - now;
  if (!marked_) {
    parked_look_ = now;
    marked_ = true;
    gates_.MarkAll(now);
    ObserveAll(now);
    if (gates_.AnyPending()) return kOpenTick;
  }
  marked_ = false;
  page_->rests.store(gates_.SurelyDrained() ? 1 : 0, std::memory_order_release);
  const Nanos next = AnyCapture() ? kFirstLook : kParkedTick;
  parked_look_ = now + next;
  return next;
}

void GateKeeper::ObserveAll(Nanos now) {
  ReportReached(gates_.Observe(now, Target(page_->gate.load(std::memory_order_relaxed))));
}

void GateKeeper::ReportReached(Nanos youngest) {
  page_->reached_ns.store(std::max(page_->reached_ns.load(std::memory_order_relaxed), youngest),
                          std::memory_order_relaxed);
}

// The work has ended: nothing more passes until the daemon opens the gate for a new Wants.
void GateKeeper::Park(Nanos now) {
  if (active_since_ != 0) busy_ += std::max<Nanos>(0, gates_.LastReached(active_since_) - active_since_);
  page_->busy_ns.store(static_cast<std::uint64_t>(busy_), std::memory_order_relaxed);
  page_->submissions.store(gates_.Submitted(), std::memory_order_relaxed);
  active_since_ = 0;
  parked_ = true;
  marked_ = false;
  parked_look_ = now + kFirstLook;
  wants_sent_ = false;
  page_->rests.store(0, std::memory_order_release);
}

void GateKeeper::Unpark(Nanos now) {
  parked_ = false;
  wants_sent_ = false;
  active_since_ = last_activity_ = now;
  page_->rests.store(0, std::memory_order_release);
}

// ---- the end ----

void GateKeeper::Stop() {
  const MutexLock lock(mutex_);
  if (!stopped_)
    for (const Gate* gate : gates_.All()) gate->watch->Stop();
  stopped_ = true;
  // Threads that still submit while the process ends must not wait.
  page_.OpenOwn();
}

void GateKeeper::AbandonAfterFork() {
  calls_.AbandonAfterFork();
  const MutexLock lock(mutex_);
  stopped_ = true;
}

}  // namespace tessera::shim
