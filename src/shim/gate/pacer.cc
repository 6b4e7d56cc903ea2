// The part of an attachment that follows the daemon's orders: waiting at the gate, and the pacer thread that notices
// when work has ended.
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/device/attachment.h"
#include "shim/gate/capture.h"
#include "shim/gate/markers.h"
#include "shim/load/real.h"
#include "shim/memory/exports.h"
#include "shim/memory/paging.h"
#include "shim/process/say.h"
#include "shim/process/thread.h"

namespace tessera::shim {

using namespace cuda;

namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

// How often the pacer looks while work runs: at what bounds the others' waiting while somebody waits, else lazily.
constexpr Nanos kDrainTick = 50 * kMicrosecond;
constexpr Nanos kBoundedTick = 250 * kMicrosecond;
constexpr Nanos kOpenTick = 5 * kMillisecond;
// Parts of the idle grace in which the pacer looks where the gate is free and the daemon wants to know soon.
constexpr Nanos kLooksInGrace = 4;
// A process without work looks this often whether the daemon is still there: a new one must learn what it holds. And
// whether it is really without work, first after a moment: who is not when its memory is brought out would wait for
// good.
constexpr Nanos kParkedTick = kSecond;
constexpr Nanos kFirstLook = 10 * kMillisecond;
// A marker behind work that has ended is reached at once, whatever stands still.
constexpr Nanos kAtOnce = 50 * kMillisecond;
// Work of which nothing ends for so long may wait for what is held back.
constexpr Nanos kStuck = 500 * kMillisecond;
// A waiting thread looks at the order this long before it sleeps: the daemon often answers sooner than a wake-up takes.
constexpr Nanos kSpin = 100 * kMicrosecond;
// What may be queued while memory is reached over the bus, and nobody else bounds it.
constexpr Nanos kHostWindow = 2 * kMillisecond;

std::mutex reconnecting;  // held by the thread that speaks with a new daemon for all

void Pause() { __builtin_ia32_pause(); }

void Sleep(Nanos time) {
  const timespec t{.tv_sec = 0, .tv_nsec = time};
  nanosleep(&t, nullptr);
}

}  // namespace

void Attachment::Ring() {
  wire::Page* page = Page();
  page->doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &page->doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Attachment::WaitForRing(std::uint32_t seen, Nanos timeout) {
  const timespec t{.tv_sec = timeout / kSecond, .tv_nsec = timeout % kSecond};
  syscall(SYS_futex, &Page()->doorbell, FUTEX_WAIT, seen, &t, nullptr, 0);
}

// ---- budgets (mutex_ held) ----

// Sends the context's next submission through Enter.
void Attachment::Close(Gate& gate) {
  gate.accepted.store(~gate.epoch->load(std::memory_order_relaxed), std::memory_order_relaxed);
  const std::int64_t left = gate.budget.exchange(0, std::memory_order_relaxed);
  if (left > 0) gate.given -= left;
}

void Attachment::CloseAll() {
  for (Gate* gate : gates_) Close(*gate);
}

// Lets the calling thread's submission pass and, as far as the window allows, some after it. False: the window is full.
bool Attachment::Fill(Gate& gate, bool bounded) {
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
  if (HostBacked()) budget = 1;  // each one is looked at: what it works on is used
  Give(gate, budget);
  return true;
}

// The calling thread's submission and so many less one after it.
void Attachment::Give(Gate& gate, std::int64_t budget) {
  const std::int64_t left = gate.budget.exchange(budget - 1, std::memory_order_relaxed);
  gate.given += budget - (left > 0 ? left : 0);
}

// What works on memory that has gone to the host may take a hundred times as long as it did: what was learned of the
// time before says nothing. And each submission goes through Enter from now on.
void Attachment::NoteMoves() {
  if (!more_out_.load(std::memory_order_relaxed)) return;
  more_out_ = false;
  for (Gate* gate : gates_) {
    gate->markers->Relearn();
    Close(*gate);
  }
}

// Whether the queue is kept short. A closed gate that is to drain must not wait for what many submissions read over the
// bus. Where the gate is free the channels are steered: a freeze stops whatever runs, and nobody waits for an end.
bool Attachment::Bounds(wire::GateOrder order) const {
  return order == wire::GateOrder::kBounded || (order == wire::GateOrder::kOpen && HostBacked());
}

Nanos Attachment::Window(wire::GateOrder order) const {
  return order == wire::GateOrder::kOpen ? kHostWindow : Page()->window_ns.load(std::memory_order_relaxed);
}

bool Attachment::Stuck(const Gate& gate, Nanos since, Nanos now) {
  return since != 0 && now - std::max(since, gate.markers->LastReached()) > kStuck;
}

// ---- the gate ----

CUresult Attachment::Enter(Gate& gate) {
  Nanos waited_since = 0, full_since = 0;
  for (;;) {
    std::uint32_t seen;
    bool full = false;
    {
      std::lock_guard lock(mutex_);
      wire::Page* page = Page();
      seen = page->doorbell.load(std::memory_order_acquire);
      const std::uint32_t epoch = page->epoch.load(std::memory_order_acquire);
      const wire::GateOrder order = page->gate.load(std::memory_order_acquire);
      if (stopped_) return CUDA_SUCCESS;
      NoteMoves();
      const bool granted = !wire::IsClosed(order) && wants_sent_ && epoch != wants_epoch_;
      if (parked_ && (granted || order == wire::GateOrder::kFree)) {
        // Where the gate is free nobody was asked: the daemon learns now that there is work. If it cannot be told, the
        // pacer sees that, and says it all to the next one.
        if (!granted) Session::Instance().Tell(wire::Make(wire::Wants{.waits = 0}, gpu_));
        Unpark();
        Ring();  // the pacer has work again
      }
      if (!parked_ && !wire::IsClosed(order)) {
        const Nanos now = MonotonicNow();
        const bool bounded = Bounds(order);
        if (bounded) {
          gate.markers->Observe(now, Window(order));
          // Where each submission comes by, a marker behind each would be too many.
          const std::int64_t every = HostBacked() ? std::max<std::int64_t>(1, gate.markers->Window() / 2) : 1;
          if (gate.markers->SinceLastMarker() >= every && waited_since == 0 && full_since == 0)
            gate.markers->Place(now, true);
          page->window.store(gate.markers->Window(), std::memory_order_relaxed);
        }
        bool passes = Fill(gate, bounded);
        if (!passes && Stuck(gate, full_since, now)) {
          Give(gate, gate.markers->Window());
          passes = true;
        }
        if (passes) {
          gate.accepted.store(epoch, std::memory_order_release);
          if (waited_since != 0) page->gate_wait_ns.fetch_add(now - waited_since, std::memory_order_relaxed);
          return CUDA_SUCCESS;
        }
        full = true;
        if (full_since == 0) full_since = now;
      } else {
        const Nanos now = MonotonicNow();
        if (waited_since == 0) {
          waited_since = now;
          page->gate_waits.fetch_add(1, std::memory_order_relaxed);
        }
        // One submission, in time that is billed as overrun: the work did not drain when the gate closed.
        if (!parked_ && order != wire::GateOrder::kStopped && Stuck(gate, waited_since, now)) {
          Give(gate, 1);
          page->gate_wait_ns.fetch_add(now - waited_since, std::memory_order_relaxed);
          return CUDA_SUCCESS;
        }
        // A later order that is closed: the token came and went before this thread woke up, so it is asked for again.
        if (parked_ && (!wants_sent_ || epoch != wants_epoch_)) {
          wants_epoch_ = epoch;
          wants_sent_ = Session::Instance().Tell(wire::Make(wire::Wants{}, gpu_));  // else again after the wait below
        }
      }
    }
    if (full) {
      // The GPU has up to the window's time of work left: no hurry, but do not oversleep it.
      Sleep(20 * kMicrosecond);
      continue;
    }
    const Nanos spin_until = MonotonicNow() + kSpin;
    while (Page()->doorbell.load(std::memory_order_acquire) == seen && MonotonicNow() < spin_until) Pause();
    WaitForRing(seen, kReconnectEvery);
    MindDaemon(MonotonicNow());
  }
}

// The ends of work matter at once only while the queue is bounded.
bool Attachment::WatchesEnds() const {
  const wire::GateOrder order = Page()->gate.load(std::memory_order_relaxed);
  return wire::IsClosed(order) || Bounds(order);
}

void Attachment::BeforeSync(Gate& gate) {
  if (!WatchesEnds()) return;
  std::lock_guard lock(mutex_);
  if (!stopped_ && !parked_ && !gate.markers->Covered()) gate.markers->Place(MonotonicNow(), true);
}

void Attachment::AfterSync(Gate& gate) {
  if (!WatchesEnds()) return;
  std::lock_guard lock(mutex_);
  if (!stopped_ && !parked_) Observe(gate, MonotonicNow());
}

// ---- what the pacer knows (mutex_ held) ----

std::int64_t Attachment::Submitted() const {
  std::int64_t sum = 0;
  for (const Gate* gate : gates_) sum += gate->Submitted();
  return sum;
}

// The gate's context is current.
void Attachment::Observe(Gate& gate, Nanos now) {
  wire::Page* page = Page();
  gate.markers->Observe(now, Window(page->gate.load(std::memory_order_relaxed)));
  const Nanos youngest = std::max(page->reached_ns.load(std::memory_order_relaxed), gate.markers->YoungestReached());
  page->reached_ns.store(youngest, std::memory_order_relaxed);
}

void Attachment::ObserveAll(Nanos now) {
  for (Gate* gate : gates_) {
    if (gate->markers->AnyPending()) REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    Observe(*gate, now);
  }
}

bool Attachment::AllDrained() const {
  return std::all_of(gates_.begin(), gates_.end(), [](const Gate* gate) {
    // A capture forbids markers; then what was marked must do.
    return AnyCapture() ? !gate->markers->AnyPending() : gate->markers->Drained();
  });
}

Nanos Attachment::LastReached() const {
  Nanos last = active_since_;
  for (const Gate* gate : gates_) last = std::max(last, gate->markers->LastReached());
  return last;
}

void Attachment::CoverAll(Nanos now, bool learn) {
  for (Gate* gate : gates_) {
    if (gate->markers->Covered()) continue;
    REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    gate->markers->Place(now, learn);
  }
}

// The work has ended: nothing more until the daemon opens the gate for a new Wants.
void Attachment::Park() {
  const Nanos ended = LastReached();
  if (active_since_ != 0) busy_ += std::max<Nanos>(0, ended - active_since_);
  Page()->busy_ns.store(static_cast<std::uint64_t>(busy_), std::memory_order_relaxed);
  Page()->submissions.store(Submitted(), std::memory_order_relaxed);
  active_since_ = 0;
  parked_ = true;
  parked_look_ = MonotonicNow() + kFirstLook;
  wants_sent_ = false;
  Page()->rests.store(0, std::memory_order_release);
}

void Attachment::Unpark() {
  parked_ = false;
  wants_sent_ = false;
  active_since_ = last_activity_ = MonotonicNow();
  Page()->rests.store(0, std::memory_order_release);
}

// What passed the gate in time, and came to the driver after the marker that was to be behind it, was not seen; nor is
// work before a capture, which forbids markers. The daemon hears of it as of what passes a free gate.
Nanos Attachment::LookWhileParked(Nanos now) {
  const auto pending = [&] {
    return std::any_of(gates_.begin(), gates_.end(), [](const Gate* gate) { return gate->markers->AnyPending(); });
  };
  ObserveAll(now);
  if (pending()) {
    if (now < parked_look_ + kAtOnce) return kOpenTick;
    Session::Instance().Tell(wire::Make(wire::Wants{.waits = 0}, gpu_));
    Unpark();
    return kOpenTick;
  }
  if (now < parked_look_) return parked_look_ - now;
  parked_look_ = now;
  for (Gate* gate : gates_) {
    REAL_AS(cuCtxSetCurrent, CUcontext)(gate->context);
    gate->markers->Place(now, false);
  }
  ObserveAll(now);
  if (pending()) return kOpenTick;
  const bool sure = !AnyCapture() && std::all_of(gates_.begin(), gates_.end(), [](const Gate* gate) {
    return gate->markers->Tell() && gate->markers->Drained();
  });
  Page()->rests.store(sure ? 1 : 0, std::memory_order_release);
  const Nanos next = AnyCapture() ? kFirstLook : kParkedTick;
  parked_look_ = now + next;
  return next;
}

// ---- the pacer ----

// One look at the state of affairs; returns how long the next one can wait.
Nanos Attachment::Tick(Nanos now) {
  wire::Page* page = Page();
  if (parked_) return LookWhileParked(now);
  NoteMoves();
  const std::uint32_t epoch = page->epoch.load(std::memory_order_acquire);
  const wire::GateOrder order = page->gate.load(std::memory_order_acquire);
  ObserveAll(now);
  if (wire::IsClosed(order)) {
    CloseAll();
    CoverAll(now, false);
    if (!AllDrained())
      return order == wire::GateOrder::kStopped ? kOpenTick : kDrainTick;  // nothing ends while all stands
    const Nanos ended = LastReached();
    Park();
    Session::Instance().Tell(wire::Make(wire::Released{.drained_at = ended, .epoch = epoch}, gpu_));
    Ring();  // whoever waits at the gate asks anew
    return kFirstLook;
  }
  const std::int64_t submitted = Submitted();
  const Nanos grace = page->idle_grace_ns.load(std::memory_order_relaxed);
  Nanos tick = Bounds(order) ? kBoundedTick : kOpenTick;
  if (order == wire::GateOrder::kFree && grace < kOpenTick) tick = std::max(grace / kLooksInGrace, kBoundedTick);
  if (submitted != tick_submitted_) {
    tick_submitted_ = submitted;
    last_activity_ = now;
    page->submissions.store(submitted, std::memory_order_relaxed);
    page->busy_ns.store(static_cast<std::uint64_t>(busy_ + now - active_since_), std::memory_order_relaxed);
    return tick;
  }
  CoverAll(now, Bounds(order));
  if (!AllDrained() || now - std::max(LastReached(), last_activity_) < grace) return tick;
  CloseAll();
  if (Submitted() != submitted) return tick;  // somebody passed just before the gate closed
  const Nanos ended = LastReached();
  Park();
  Session::Instance().Tell(wire::Make(wire::Idle{.since = ended}, gpu_));
  Ring();
  return kFirstLook;
}

void Attachment::Pace() {
  prctl(PR_SET_TIMERSLACK, 1);
  CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&relaxed);
  for (Nanos next_look = 0;;) {
    const std::uint32_t seen = Page()->doorbell.load(std::memory_order_acquire);
    Nanos wait;
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      wait = Tick(MonotonicNow());
    }
    if (Session::Instance().LostSince() != 0) wait = std::min(wait, kReconnectEvery);
    WaitForRing(seen, wait);
    const Nanos now = MonotonicNow();
    if (now < next_look) continue;
    next_look = now + kOpenTick;
    MindDaemon(now);
    ReportHot(now);
  }
}

void* Attachment::PacerMain(void* self) {
  static_cast<Attachment*>(self)->Pace();
  return nullptr;
}

void Attachment::StartPacer() {
  const int failed = StartThread("tessera-pacer", PacerMain, this);
  if (failed)
    Say("cannot start a thread (error %d): this program's token returns only when the daemon takes it", failed);
}

// False: the daemon is there, and has no page for this GPU.
bool Attachment::Reattach() {
  std::lock_guard lock(mutex_);
  wire::Page* before = Page();
  // Work in flight goes on, and a new daemon must know of it: no submission may come for long. Nothing may pass from
  // here until the new page is followed, or it would not be known.
  CloseAll();
  const bool works = !parked_ && !AllDrained();
  UniqueFd line;
  if (Attach(&line, works) != Attaching::kDone) return false;
  if (paging_) paging_->Follow(std::move(line));
  if (!works) Park();
  before->doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &before->doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  return true;
}

// One try to get a lost session back, after another thread's. True: it stands.
bool Attachment::Reconnect() {
  std::lock_guard one(reconnecting);
  return !Session::Instance().Lost() || ReconnectLocked();
}

bool Attachment::ReconnectLocked() {
  // Who comes to a daemon has nothing under way with the mover of another.
  ForEach([](Attachment& attachment) {
    if (attachment.paging_) attachment.paging_->Retreat();
  });
  const bool stands = Session::Instance().Reconnect([] {
    bool all = true;
    ForEach([&](Attachment& attachment) { all = all && attachment.Reattach(); });
    ForgetToldExports();
    return all;
  });
  if (stands) TellExports();
  return stands;
}

// Looks after a lost daemon: reconnects; after the grace follows the policy.
void Attachment::MindDaemon(Nanos now) {
  Session& session = Session::Instance();
  if (!session.Lost()) return;
  static Nanos next_try = 0;
  std::unique_lock one(reconnecting, std::try_to_lock);
  if (!one) return;
  if (now >= next_try) {
    next_try = now + kReconnectEvery;
    if (ReconnectLocked()) return;
  }
  if (now - session.LostSince() < session.Grace()) return;
  ForEach([block = session.BlockOnLoss()](Attachment& attachment) {
    std::lock_guard lock(attachment.mutex_);
    std::lock_guard holding(attachment.holding_);
    if (attachment.on_fallback_ || (attachment.paging_ && !attachment.paging_->Safe())) return;
    Say("the daemon has been gone for %lld s: %s", static_cast<long long>(Session::Instance().Grace() / kSecond),
        block ? "waiting until one answers" : "going on without limits of time");
    wire::Page* before = attachment.Page();
    attachment.on_fallback_ = true;
    wire::Page& page = attachment.fallback_;
    page.memory_max = before->memory_max.load();
    page.memory_available = before->memory_available.load();
    page.memory_credit = before->memory_credit.load();
    page.memory_returned = attachment.memory_returned_.load();
    page.memory_credit_keep = UINT64_MAX >> 1;
    page.idle_grace_ns = kNever;
    page.gate = block ? wire::GateOrder::kClosed : wire::GateOrder::kOpen;
    page.epoch.fetch_add(2);
    attachment.Adopt(&page);
    if (block) {
      attachment.Park();
    } else {
      attachment.Unpark();
    }
    before->doorbell.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &before->doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  });
}

void Attachment::Stop() {
  if (paging_) paging_->Stop();
  std::lock_guard lock(mutex_);
  stopped_ = true;
  // Threads that still submit while the process ends must not wait.
  fallback_.gate = wire::GateOrder::kOpen;
  fallback_.epoch.fetch_add(1);
}

void Attachment::AbandonAfterFork() {
  if (paging_) paging_->AbandonAfterFork();
  new (&mutex_) std::mutex;
  new (&report_mutex_) std::mutex;
  new (&holding_) std::mutex;
  calls_ = 0;
  page_ = &fallback_;  // the other is the parent's
  stopped_ = true;
}

}  // namespace tessera::shim
