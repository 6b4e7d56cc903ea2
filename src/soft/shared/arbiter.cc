#include "soft/shared/arbiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "soft/shared/shared_layout.h"
#include "soft/shared/wait.h"

namespace tessera::soft {
namespace {

constexpr std::int32_t kNobody = -1;
// The host may lag behind the modelled time by this much, from late timers and busy cores, and catch up.
constexpr Nanos kCatchUp = kMillisecond;
// Shorter waits cost more than they make up for.
constexpr Nanos kShortestWait = 100 * kMicrosecond;

std::span<SharedTurn> UsedTurns(SharedDevice& device) TESSERA_REQUIRES(device.mutex) {
  return {device.turns, device.turn_count};
}

bool MayNotRun(const SharedLayout& layout, int device, const SharedTurn& turn) {
  return layout.slots[turn.slot].use[device].frozen != Frozen::kNothing;
}

// `device` is layout.devices[index] in what follows.

// Also gives the holder until now, if somebody waits only since its slice was over.
void CountWaiting(const SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  const auto waiting = std::ranges::count_if(UsedTurns(device), [&](const SharedTurn& turn) {
    return turn.process.pid != 0 && turn.granted == 0 && !MayNotRun(layout, index, turn);
  });
  if (device.waiting == 0 && waiting != 0) device.slice_end = std::max(device.slice_end.load(), MonotonicNow());
  device.waiting = static_cast<std::uint32_t>(waiting);
}

// How long a turn lasts that begins now: what the last one took too long, because the host's timer was late, is missing
// from this one, so that turns are right on average.
Nanos TurnOf(SharedUse& use, Nanos slice) {
  const Nanos missing = std::min(use.overrun.load(), slice / 2);
  use.overrun -= missing;
  return slice - missing;
}

// Lets the one execute who has waited longest, if nobody does.
void Grant(SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  while (device.holder == kNobody) {
    SharedTurn* next = nullptr;
    for (SharedTurn& turn : UsedTurns(device)) {
      if (turn.process.pid == 0 || MayNotRun(layout, index, turn)) continue;
      if (next == nullptr || turn.ticket < next->ticket) next = &turn;
    }
    if (next == nullptr) break;
    if (next->process.pid != getpid() && !next->process.Alive(layout.pid_namespace)) {
      next->process = {};
      continue;
    }
    device.holder = static_cast<std::int32_t>(next - device.turns);
    SharedUse& use = layout.slots[next->slot].use[index];
    const Nanos slice = use.slice != 0 ? use.slice.load() : layout.spec.slice;
    next->granted_at = MonotonicNow();
    device.slice_end = next->granted_at + TurnOf(use, slice);
    next->granted = 1;
    syscall(SYS_futex, &next->granted, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  CountWaiting(layout, device, index);
}

// Grant for those who wait: a holder that died cannot hand over itself.
void GrantUnlessHeld(SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  if (device.holder != kNobody) {
    SharedTurn& turn = device.turns[device.holder];
    // A process that was killed in the middle of Leave has no turn any more.
    const bool held = turn.process.pid != 0 && turn.process.Alive(layout.pid_namespace);
    if (!held) {
      turn.process = {};
      device.holder = kNobody;
    }
  }
  Grant(layout, device, index);
}

// Joins the queue. kNobody if it is full.
std::int32_t Enqueue(SharedDevice& device, std::uint32_t slot, const ProcessId& process)
    TESSERA_REQUIRES(device.mutex) {
  const auto used = UsedTurns(device);
  const auto free = std::ranges::find(used, 0, [](const SharedTurn& turn) { return turn.process.pid; });
  if (free == used.end() && used.size() == std::size(device.turns)) return kNobody;
  SharedTurn& turn = free != used.end() ? *free : device.turns[device.turn_count++];
  turn.ticket = device.next_ticket++;
  turn.slot = slot;
  turn.granted = 0;
  turn.process = process;
  return static_cast<std::int32_t>(&turn - device.turns);
}

}  // namespace

void Arbiter::Acquire() {
  if (turn_ != kNobody) return;
  SharedLayout& layout = state_.layout();
  SharedDevice& device = layout.devices[device_];
  const auto slot = static_cast<std::uint32_t>(&state_.slot() - layout.slots);
  for (;;) {
    {
      const RobustLock lock(device.mutex);
      turn_ = Enqueue(device, slot, state_.slot().process);
      GrantUnlessHeld(layout, device, device_);
    }
    if (turn_ != kNobody) break;
    WaitUntil(MonotonicNow() + kDeathCheck);  // more contexts wait than there are turns
  }
  SharedTurn& turn = device.turns[turn_];
  const timespec death_check = {0, kDeathCheck};
  while (turn.granted == 0) {
    syscall(SYS_futex, &turn.granted, FUTEX_WAIT, 0, &death_check, nullptr, 0);
    if (turn.granted != 0) break;
    const RobustLock lock(device.mutex);
    GrantUnlessHeld(layout, device, device_);
  }
  end_ = turn.granted_at;
}

bool Arbiter::ShouldYield() const {
  if (turn_ == kNobody) return false;
  const SharedDevice& device = state_.layout().devices[device_];
  if (state_.slot().use[device_].frozen != Frozen::kNothing) return true;
  return device.waiting != 0 && MonotonicNow() >= device.slice_end;
}

void Arbiter::Leave() {
  SharedLayout& layout = state_.layout();
  SharedDevice& device = layout.devices[device_];
  const RobustLock lock(device.mutex);
  if (device.waiting != 0) state_.slot().use[device_].overrun += std::max(Nanos{0}, end_ - device.slice_end);
  device.turns[turn_].process = {};
  device.holder = kNobody;
  turn_ = kNobody;
  Grant(layout, device, device_);
}

void Arbiter::Yield() {
  Release();
  Acquire();
}

void Arbiter::Release() {
  if (turn_ == kNobody) return;
  WaitForEnd();
  ExtendTo(std::max(end_, MonotonicNow()));  // nobody else could have the device
  Leave();
}

void Arbiter::ExtendTo(Nanos end) {
  state_.slot().use[device_].busy += end - end_;
  end_ = end;
}

void Arbiter::Charge(std::uint64_t instructions) {
  const double exact = remainder_ + static_cast<double>(instructions) * kSecond /
                                        static_cast<double>(state_.spec().instructions_per_second);
  const Nanos busy = static_cast<Nanos>(exact);
  remainder_ = exact - static_cast<double>(busy);
  ExtendTo(std::max(end_, MonotonicNow() - kCatchUp) + busy);
  if (end_ - MonotonicNow() > kShortestWait) WaitForEnd();
}

void Arbiter::WaitForEnd() {
  if (end_ > MonotonicNow()) WaitUntil(end_);
}

void GrantNext(SharedLayout& layout, int device) {
  SharedDevice& shared = layout.devices[device];
  const RobustLock lock(shared.mutex);
  Grant(layout, shared, device);
}

}  // namespace tessera::soft
