#include "server/swap/residency_actions.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/swap/chunks.h"
#include "server/swap/residency_trace.h"

namespace tessera::server {

using sched::Moving;

static_assert(sched::kAnyHoles == wire::kAnyHoleBytes);

void ResidencyActions::Do(const sched::ResidencyAction& action, Process& process, Nanos now) {
  using enum sched::ResidencyActionKind;
  Residence& residence = process.residence;
  switch (action.kind) {
    case kStop:
      return Stop(process, now);
    case kRun:
      return Run(process, now);
    case kThaw:
      return Thaw(process, now);
    case kFreePeers:
      return FreePeers(process, now);
    case kMoveOut:
      if (!Order(process, Moving::kOut, action.bytes, now, HowOut(process, action.bytes))) return;
      residence.push = residence.evict_error = 0;
      return Relocate(process);
    case kSqueeze:
      Order(process, Moving::kOut, action.bytes, now, wire::kEvictHoles);
      return;
    case kMoveIn:
      AddRoom(process, action.bytes);
      if (!Order(process, Moving::kIn, action.bytes, now, action.holes)) residence.room -= action.bytes;
      return;
    case kSettle:
      Order(process, Moving::kSettling, 0, now);
      return;
    case kPark:
      Order(process, Moving::kParking, 0, now);
      return Relocate(process);
    case kRest:
      Order(process, Moving::kOut, 0, now);
      return;
    case kGrant:
      return Grant(process, action.bytes, now);
    case kRevokeCredit:
      return RevokeCredit(process);
    case kDropWish:
      residence.wanted = 0;
      return;
    case kEndPush:
      residence.push = 0;
      if (action.bytes > 0) residence.evict_error = EDQUOT;
      return;
    case kGrowPool:
    case kPreparePool:
      return;  // of no process
  }
}

// Also what it left on another GPU, and has not had since.
void ResidencyActions::Relocate(const Process& process) {
  if (process.suspension.Away() && !process.suspension.in_place) link_.Order(process, wire::MoverType::kRelocate);
}

void ResidencyActions::AddRoom(Process& process, std::uint64_t bytes) {
  process.residence.room += bytes;
  process.memory.most_charged = std::max(process.memory.most_charged, process.memory.Known());
}

void ResidencyActions::AddCredit(Process& process, std::uint64_t bytes) {
  AddRoom(process, bytes);
  process.page->room_credit.fetch_add(static_cast<std::int64_t>(bytes));
}

void ResidencyActions::Grant(Process& process, std::uint64_t bytes, Nanos now) {
  AddCredit(process, bytes);
  process.residence.wanted = 0;
  process.residence.granted_at = now;
  process.page.Ring();
}

// Credit that the program has taken since the plan was made stays its own.
void ResidencyActions::RevokeCredit(Process& process) {
  const std::int64_t credit = process.page->room_credit.exchange(0);
  if (credit > 0) process.residence.room = Less(process.residence.room, static_cast<std::uint64_t>(credit));
}

void ResidencyActions::Stop(Process& process, Nanos now) {
  process.residence.stopped = true;
  process.residence.thawed = process.residence.alone = process.residence.keeps_peers = false;
  Trace(process, "stops");
  host_.hold(process, MemoryHold::kFrozen, now);
}

void ResidencyActions::Run(Process& process, Nanos now) {
  process.residence.stopped = process.residence.thawed = process.residence.alone = false;
  process.residence.keeps_peers = false;
  Trace(process, "runs");
  host_.hold(process, MemoryHold::kNone, now);
}

void ResidencyActions::Thaw(Process& process, Nanos now) {
  process.residence.thawed = true;
  process.residence.alone = false;
  process.residence.keeps_peers = process.suspension.Away();
  host_.hold(process, process.residence.keeps_peers ? MemoryHold::kAway : MemoryHold::kGate, now);
}

void ResidencyActions::FreePeers(Process& process, Nanos now) {
  process.residence.alone = true;
  Trace(process, "frees-peers");
  host_.hold(process, MemoryHold::kAlone, now);
}

// What a program holds nothing of need not be parked: it stays in place at first. If it is to go on to host memory, the
// mover brings none of that to the file, so that there has to be room for it in the pool.
std::uint64_t ResidencyActions::HowOut(const Process& process, std::uint64_t bytes) const {
  const sched::PoolResidence& pool = link_.Pool();
  const bool fits = !file_ || bytes <= Less(pool.most, pool.used);
  return process.suspension.Away() && (fits || process.suspension.in_place) ? wire::kEvictInPlace : 0;
}

bool ResidencyActions::Order(Process& process, Moving moving, std::uint64_t bytes, Nanos now, std::uint64_t other) {
  using enum wire::MoverType;
  const bool out = moving == Moving::kOut, in = moving == Moving::kIn;
  const bool parks = moving == Moving::kParking;
  if (!link_.Order(process, out ? kEvict : in ? kLoad : parks ? kPark : kSettle, bytes, other)) return false;
  process.residence.parked = false;  // what goes out now may be held by the program
  if (out) process.residence.comes_at_once = false;
  process.residence.moves.Order(moving, bytes, now, in && other != sched::kAnyHoles ? other : 0);
  process.residence.may_be_in_file = out && file_;
  Trace(process,
        out     ? "orders-out"
        : in    ? "orders-in"
        : parks ? "orders-park"
                : "orders-settle",
        out ? bytes : 0, in ? bytes : 0);
  return true;
}

}  // namespace tessera::server
