#include "soft/shared/arbiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "soft/shared/mps_servers.h"
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

bool Executes(const SharedTurn& turn) { return turn.process.pid != 0 && turn.granted != 0; }

// The same context, or contexts of clients of one MPS server: they execute at the same time.
bool Together(const SharedLayout& layout, const SharedTurn& a, const SharedTurn& b) {
  const ProcessId& server = layout.slots[a.slot].mps.server;
  return &a == &b || (server.pid != 0 && server == layout.slots[b.slot].mps.server);
}

// What has the settings of a turn: its process, or the MPS server whose client that is.
SharedUse& SteeredUse(SharedLayout& layout, std::uint32_t slot, int device) {
  const SharedMps& mps = layout.slots[slot].mps;
  const bool grouped = mps.server.pid != 0 && layout.slots[mps.server_slot].process == mps.server;
  return layout.slots[grouped ? mps.server_slot : slot].use[device];
}

std::uint32_t CountWaiting(const SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  const SharedTurn* holder = device.holder == kNobody ? nullptr : &device.turns[device.holder];
  return static_cast<std::uint32_t>(std::ranges::count_if(UsedTurns(device), [&](const SharedTurn& turn) {
    return turn.process.pid != 0 && turn.granted == 0 && !MayNotRun(layout, index, turn) &&
           (holder == nullptr || !Together(layout, turn, *holder));
  }));
}

// Also gives the holder until now, if somebody waits only since its slice was over.
void CountAll(const SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  const std::uint32_t waiting = CountWaiting(layout, device, index);
  if (device.waiting == 0 && waiting != 0) device.slice_end = std::max(device.slice_end.load(), MonotonicNow());
  device.waiting = waiting;
  std::uint32_t demand = 0;
  for (const SharedTurn& turn : UsedTurns(device)) demand += Executes(turn) ? turn.multiprocessors : 0;
  device.demand = demand;
}

// How long a turn lasts that begins now: what the last one took too long, because the host's timer was late, is missing
// from this one, so that turns are right on average.
Nanos TurnOf(SharedUse& use, Nanos slice) {
  const Nanos missing = std::min(use.overrun.load(), slice / 2);
  use.overrun -= missing;
  return slice - missing;
}

std::int32_t FindHolder(SharedDevice& device) TESSERA_REQUIRES(device.mutex) {
  const auto used = UsedTurns(device);
  const auto found = std::ranges::find_if(used, Executes);
  return found == used.end() ? kNobody : static_cast<std::int32_t>(found - used.begin());
}

// Who has waited longest of those that may execute now: anybody where nobody does, else those in MPS with the holder,
// unless its slice is over and others wait. Null if there is none.
SharedTurn* Next(const SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  const SharedTurn* holder = device.holder == kNobody ? nullptr : &device.turns[device.holder];
  SharedTurn* next = nullptr;
  for (SharedTurn& turn : UsedTurns(device)) {
    if (turn.process.pid == 0 || turn.granted != 0 || MayNotRun(layout, index, turn)) continue;
    if (holder != nullptr && !Together(layout, turn, *holder)) continue;
    if (next == nullptr || turn.ticket < next->ticket) next = &turn;
  }
  const bool over = next != nullptr && holder != nullptr && MonotonicNow() >= device.slice_end &&
                    CountWaiting(layout, device, index) != 0;
  return over ? nullptr : next;
}

// Lets execute who may now.
void Grant(SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  for (;;) {
    device.holder = FindHolder(device);
    SharedTurn* next = Next(layout, device, index);
    if (next == nullptr) break;
    if (next->process.pid != getpid() && !next->process.Alive(layout.pid_namespace)) {
      next->process = {};
      continue;
    }
    next->granted_at = MonotonicNow();
    if (device.holder == kNobody) {
      SharedUse& use = SteeredUse(layout, next->slot, index);
      const Nanos slice = use.slice != 0 ? use.slice.load() : layout.spec.slice;
      device.slice_end = next->granted_at + TurnOf(use, slice);
    }
    next->granted = 1;
    syscall(SYS_futex, &next->granted, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  CountAll(layout, device, index);
}

// Grant for those who wait: one that died while it executed cannot hand over itself.
void GrantUnlessHeld(SharedLayout& layout, SharedDevice& device, int index) TESSERA_REQUIRES(device.mutex) {
  for (SharedTurn& turn : UsedTurns(device)) {
    if (Executes(turn) && !turn.process.Alive(layout.pid_namespace)) turn.process = {};
  }
  Grant(layout, device, index);
}

// Joins the queue. kNobody if it is full.
std::int32_t Enqueue(SharedDevice& device, std::uint32_t slot, const ProcessId& process, std::uint32_t multiprocessors)
    TESSERA_REQUIRES(device.mutex) {
  const auto used = UsedTurns(device);
  const auto free = std::ranges::find(used, 0, [](const SharedTurn& turn) { return turn.process.pid; });
  if (free == used.end() && used.size() == std::size(device.turns)) return kNobody;
  SharedTurn& turn = free != used.end() ? *free : device.turns[device.turn_count++];
  turn.ticket = device.next_ticket++;
  turn.slot = slot;
  turn.granted = 0;
  turn.multiprocessors = multiprocessors;
  turn.process = process;
  return static_cast<std::int32_t>(&turn - device.turns);
}

}  // namespace

void Arbiter::UseDevice(int device) {
  if (turn_ == kNobody) device_ = device;
}

void Arbiter::Use(std::uint32_t multiprocessors) {
  const std::uint32_t before = std::exchange(multiprocessors_, multiprocessors);
  if (before == multiprocessors || turn_ == kNobody || !IsMpsClient(state_)) return;
  SharedLayout& layout = state_.layout();
  SharedDevice& device = layout.devices[device_];
  const RobustLock lock(device.mutex);
  device.turns[turn_].multiprocessors = multiprocessors;
  CountAll(layout, device, device_);
}

void Arbiter::Acquire() {
  if (turn_ != kNobody) return;
  SharedLayout& layout = state_.layout();
  SharedDevice& device = layout.devices[device_];
  const auto slot = static_cast<std::uint32_t>(&state_.slot() - layout.slots);
  for (;;) {
    {
      const RobustLock lock(device.mutex);
      turn_ = Enqueue(device, slot, state_.slot().process, multiprocessors_);
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
    if (turn.granted != 0 || EndedByMps(state_) == cuda::CUDA_SUCCESS) continue;
    turn.process = {};
    turn_ = kNobody;
    CountAll(layout, device, device_);
    return;
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
  device.turns[turn_].process = {};
  // The turn of a group ends with the last one of it.
  if (device.waiting != 0 && FindHolder(device) == kNobody) {
    const auto slot = static_cast<std::uint32_t>(&state_.slot() - layout.slots);
    SteeredUse(layout, slot, device_).overrun += std::max(Nanos{0}, end_ - device.slice_end);
  }
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

void Arbiter::LookForDeadClients() {
  SharedLayout& layout = state_.layout();
  SharedDevice& device = layout.devices[device_];
  const Nanos now = MonotonicNow();
  if (device.demand == multiprocessors_ || now - looked_ < kDeathCheck) return;
  looked_ = now;
  const RobustLock lock(device.mutex);
  GrantUnlessHeld(layout, device, device_);
}

void Arbiter::Charge(std::uint64_t instructions) {
  if (turn_ != kNobody && IsMpsClient(state_)) LookForDeadClients();
  // Clients of one MPS server that want more multiprocessors than there are share them.
  const std::uint32_t all = state_.spec().multiprocessors;
  const std::uint32_t wanted = std::max(state_.layout().devices[device_].demand.load(std::memory_order_relaxed), all);
  const double exact = remainder_ + static_cast<double>(instructions) * kSecond * wanted / all /
                                        static_cast<double>(state_.spec().instructions_per_second);
  const Nanos busy = static_cast<Nanos>(exact);
  remainder_ = exact - static_cast<double>(busy);
  ExtendTo(std::max(end_, MonotonicNow() - kCatchUp) + busy);
  if (end_ - MonotonicNow() > kShortestWait) WaitForEnd();
}

void Arbiter::WaitForEnd() {
  if (end_ > MonotonicNow()) WaitUntil(end_);
}

bool HasTurns(SharedState& state, int device) {
  SharedDevice& shared = state.layout().devices[device];
  const RobustLock lock(shared.mutex);
  const auto mine = [&](const SharedTurn& turn) { return turn.process == state.slot().process; };
  return std::ranges::any_of(UsedTurns(shared), mine);
}

void GrantNext(SharedLayout& layout, int device) {
  SharedDevice& shared = layout.devices[device];
  const RobustLock lock(shared.mutex);
  Grant(layout, shared, device);
}

}  // namespace tessera::soft
