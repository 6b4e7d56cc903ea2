#include "sched/residency/planner/residency_pass.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sched/residency/squeeze.h"
#include "sched/residency/swap_bounds.h"

namespace tessera::sched {
namespace {

using Kind = ResidencyActionKind;

// A wish ends this long after the program last repeated it.
constexpr Nanos kWishLasts = 2 * kSecond;
// A move without progress for so long has stalled: something else has stopped a program, or a disk or the mover hangs.
constexpr Nanos kLongestMove = 10 * kSecond;
// A process that does nothing for so long may well do so for longer.
constexpr Nanos kRests = kSecond;
// A process of which nothing was moved for so long stays stopped for its turn, not for a step of a move: its peers need
// not wait for that.
constexpr Nanos kWaits = 100 * kMillisecond;
// The same where its peers have no turn either, while memory of others comes in: mapping both at once takes longer.
constexpr Nanos kWaitsInGang = 4 * kSecond;

// The least that is ordered where memory comes in while other memory goes out: so much that the mover always has some
// batches under way, and so little that both directions are busy most of the time.
std::uint64_t StepOf(const ResidencyState& state) {
  return std::clamp<std::uint64_t>(state.capacity / 64 / state.chunk, 2, 4) * state.chunk;
}

// Processes without work lose memory first, and of these the largest.
std::vector<PlannedProcess> VictimsOf(std::span<const PlannedProcess> processes, Nanos now) {
  std::vector<PlannedProcess> victims(processes.begin(), processes.end());
  std::ranges::sort(victims, {}, [now](const PlannedProcess& process) {
    return std::tuple(process.now->Active(now), UINT64_MAX - process.now->Movable(), process.now->id);
  });
  return victims;
}

// Room for memory that comes in, and how much of it may be holes.
struct Incoming {
  std::uint64_t bytes = 0, holes = 0;
};

// Share of one process of the `left` bytes that may come in; all processes of its vGPU have `all_out` to come in with
// as little room as may be, and `all_whole` as whole chunks.
//
// Chunks come back whole if all that is out may come in so: that is quick, and what is freed of them is room for later
// allocations. If all of it fits without holes only, so many of them stay away. If it does not fit in any way, whole
// chunks come as far as they fit.
Incoming RoomFor(const ProcessResidence& process, std::uint64_t left, std::uint64_t all_out, std::uint64_t all_whole) {
  const std::uint64_t out = process.Out(), whole = process.WholeOut();
  if (left >= all_whole || left < all_out) return {.bytes = whole, .holes = kAnyHoles};
  if (out == 0) return {};  // it is on its way without
  const std::uint64_t holes = std::min(left - all_out, whole - out);
  return {.bytes = out + holes, .holes = holes};
}

// How much of an order of `bytes` may be holes; `back` bytes of it must come back.
std::uint64_t HolesOf(const Incoming& incoming, std::uint64_t bytes, std::uint64_t back, const ResidencyState& state) {
  // Where room comes by and by, each order has its part of the holes.
  if (incoming.holes != kAnyHoles && bytes < incoming.bytes) {
    const double share = static_cast<double>(bytes) / static_cast<double>(incoming.bytes);
    return DownTo(state.unit, static_cast<std::uint64_t>(static_cast<double>(incoming.holes) * share));
  }
  // Where not even one whole chunk has place, what must come back comes without holes.
  return bytes < std::min(state.chunk, incoming.bytes) ? bytes - back : incoming.holes;
}

}  // namespace

ResidencyPass::ResidencyPass(ResidencyState& state, Residency& policy, ResidencyPlan& plan, Nanos now)
    : state_(state), policy_(policy), plan_(plan), now_(now), room_(state.Room()) {}

void ResidencyPass::CollectCredit(const PlannedProcess& process) {
  const ProcessResidence& its = *process.now;
  if (its.wanted > 0 && now_ - its.wanted_at > kWishLasts) Note(process, Kind::kDropWish, 0);
  if (its.credit > 0 && its.Granted(now_) == 0) Note(process, Kind::kRevokeCredit, 0);
}

void ResidencyPass::Serve(VGpuResidence& vgpu, VGpuRecord& record, std::span<const PlannedProcess> processes,
                          const VGpuGoal& goal) {
  served_ = {.vgpu = &vgpu, .record = &record, .processes = processes, .goal = goal};
  for (const ProcessResidence& process : vgpu.processes) {
    served_.room += process.room;
    served_.resident += process.Movable();
    served_.wanted += process.pins ? 0 : process.wanted;
    served_.squeezed += Less(process.squeezed, process.Coming());
    served_.out += process.Out();
    served_.whole_out += process.WholeOut();
  }
  NoteGoal();
  GrantPinned();
  for (const PlannedProcess& process : processes) {
    process.record->moves = false;
    SendAway(process);
  }
  if (!state_.mover_ready) {
    LetAllRun();
    if (goal.runs) GrantWishes();
    return;
  }
  for (const PlannedProcess& process : processes) {
    if (process.now->away) continue;
    if (goal.runs) {
      BeginExchange(process);
    } else if (!process.now->stopped) {
      Stop(process);
    }
  }
  Evict(Squeeze(Less(Needed(), goal.target)));
  if (!goal.runs) {
    for (const PlannedProcess& process : processes) LetRest(process);
    return;
  }
  GrantWishes();
  Load();
  LetRun();
}

void ResidencyPass::NoteGoal() {
  VGpuRecord& record = *served_.record;
  const VGpuGoal& goal = served_.goal;
  const VGpuGoal before = std::exchange(record.goal, goal);
  if (goal != before) plan_.changed.push_back(goal);
  // Until the goal is reached it is the same move, however the target changes on the way.
  const bool begins = goal.runs && (!before.runs || (record.ready && goal.target > before.target));
  if (begins) record.since = now_;
  if (begins || !goal.runs) record.ready = false;
}

// Bytes that the vGPU would have on the GPU. Memory that must come back takes the place of other memory of the vGPU, if
// need be. Memory on its way in has its room already.
std::uint64_t ResidencyPass::Needed() const {
  std::uint64_t needed = served_.resident;
  if (!served_.goal.runs) return needed;
  needed += served_.wanted;
  for (const ProcessResidence& process : served_.vgpu->processes)
    needed += Less(process.recalled + process.squeezed, process.moving == Moving::kIn ? process.ordered : 0);
  return needed;
}

// While nothing can be moved, stopping one program does not help another.
void ResidencyPass::LetAllRun() {
  for (const PlannedProcess& process : served_.processes)
    if (process.now->stopped && !process.now->unsafe && !process.now->away) Run(process);
}

// A process that has all it may have on the GPU, and would rather have other memory there: what it uses least goes out,
// and then there is room for what it uses most. Host memory for that must be there already: making it takes longer.
void ResidencyPass::BeginExchange(const PlannedProcess& process) {
  const ProcessResidence& its = *process.now;
  ProcessRecord& record = *process.record;
  if (its.stopped || its.moving != Moving::kNothing || its.wanted > 0 || its.push > 0 || !its.Reachable(now_) ||
      !its.Active(now_))
    return;
  std::uint64_t bytes =
      std::min({record.exchange.Bytes(its.hot_out, now_), its.Movable(), Less(state_.pool.size, state_.pool.used)});
  if (served_.vgpu->swap) bytes = std::min(bytes, SwapLeft(state_, *served_.vgpu));
  record.colder = DownTo(state_.chunk, bytes);
  if (record.colder == 0) return;
  record.exchanging = true;
  record.moved_before = its.moved_for;
}

// A vGPU that runs and has too much has it because it wants more, or because others do: its holes go first. Some chunks
// at a time go out for that, and when they are back without their holes some more, while the process stands still.
// Returns what holes cannot give.
std::uint64_t ResidencyPass::Squeeze(std::uint64_t excess) {
  if (excess == 0 || !served_.goal.runs || Squeezable(state_, *served_.vgpu, now_) == 0) return excess;
  for (const PlannedProcess& process : VictimsOf(served_.processes, now_)) {
    const ProcessResidence& its = *process.now;
    if (its.away || its.holes == 0 || !its.Reachable(now_) || its.push > 0) continue;
    process.record->moves = true;
    const std::uint64_t given = std::min(excess, its.holes);
    if (its.moving == Moving::kNothing && its.squeezed == 0 && !Stop(process) && its.still)
      Do(process, Kind::kSqueeze, SqueezeStep(state_, *served_.vgpu, its, excess));
    excess -= given;
    if (excess == 0) break;
  }
  return excess;
}

// A process that was stopped just now is expected to come to a stand and to give what it is asked for. If it was
// stopped before and still does something, that may take long: another one is asked as well.
void ResidencyPass::Evict(std::uint64_t excess) {
  std::uint64_t going = 0;
  bool asked = false;  // by an operator, or for an exchange
  for (const PlannedProcess& process : served_.processes) {
    if (process.now->moving == Moving::kOut) going += process.now->ordered;
    asked |= process.now->push > 0 || process.record->colder > 0;
  }
  excess = Less(excess, going);
  if (excess == 0 && !asked) return;
  const std::uint64_t chunk = state_.chunk;
  std::uint64_t may_go = SwapLeft(state_, *served_.vgpu);
  for (const PlannedProcess& process : VictimsOf(served_.processes, now_)) {
    const ProcessResidence& its = *process.now;
    ProcessRecord& record = *process.record;
    if (its.away || its.moving != Moving::kNothing || !its.Reachable(now_)) continue;
    const std::uint64_t movable = DownTo(state_.unit, its.Movable());
    const std::uint64_t pushed = std::min(UpTo(chunk, its.push), movable);
    const std::uint64_t wished = std::max({UpTo(chunk, excess), pushed, record.colder});
    const std::uint64_t bytes = std::min({wished, movable, DownTo(chunk, may_go)});
    if (bytes == 0) {
      if (its.push > 0) Do(process, Kind::kEndPush, pushed);
      continue;
    }
    record.moves = true;
    if (!Stop(process)) {
      if (!its.still) continue;
      Do(process, Kind::kMoveOut, bytes);
      if (bytes < pushed) Do(process, Kind::kEndPush, pushed - bytes);
      record.colder = 0;
    }
    excess = Less(excess, bytes);
    may_go = Less(may_go, bytes);
  }
}

// What cannot be moved is taken off what the others share, and waits for no turn: only until others have moved.
void ResidencyPass::GrantPinned() {
  for (const PlannedProcess& process : served_.processes) {
    const ProcessResidence& its = *process.now;
    if (its.pins && its.wanted > 0) Grant(process);
  }
}

void ResidencyPass::GrantWishes() {
  for (const PlannedProcess& process : served_.processes) {
    const ProcessResidence& its = *process.now;
    if (!its.pins && its.wanted > 0 && served_.resident + served_.squeezed + its.wanted <= served_.goal.target)
      Grant(process);
  }
}

void ResidencyPass::Grant(const PlannedProcess& process) {
  const ProcessResidence& its = *process.now;
  if (its.wanted <= Free()) {
    Do(process, Kind::kGrant, its.wanted);
  } else if (its.Granted(now_) > 0 && its.wanted <= Free() + its.credit) {
    Do(process, Kind::kRevokeCredit);  // it waits for more than that, and nobody else is in its way
  }
}

void ResidencyPass::Load() {
  if (!served_.vgpu->Active(now_)) return;  // it comes when it is needed
  const std::uint64_t chunk = state_.chunk;
  std::uint64_t expected = 0;  // of processes that were stopped just now for that
  for (const PlannedProcess& process : served_.processes) {
    const ProcessResidence& its = *process.now;
    const std::uint64_t left = Less(served_.goal.target, served_.resident + served_.wanted + expected);
    const std::uint64_t out = its.Out();
    const Incoming incoming = RoomFor(its, left, served_.out, served_.whole_out);
    served_.out -= out;
    served_.whole_out -= its.WholeOut();
    const bool free_to_move = its.moving == Moving::kNothing || its.moving == Moving::kIn;
    if (its.away || incoming.bytes == 0 || !its.Reachable(now_) || its.push > 0 || !free_to_move) continue;
    // What was squeezed, and what must come back, has its place, whatever else is wanted.
    const std::uint64_t back = std::min(Less(its.squeezed + its.recalled, its.Coming()), out);
    const std::uint64_t lacks = DownTo(state_.unit, std::max(back, left));
    const std::uint64_t bytes = std::min({incoming.bytes, lacks, DownTo(state_.unit, Less(Free(), expected))});
    // No chunk is larger than `chunk`, so that one of them fits, or all that is out.
    if (bytes == 0 || (bytes < chunk && bytes < (back > 0 ? back : incoming.bytes))) continue;
    if (bytes < StepOf(state_) && bytes < incoming.bytes && bytes < lacks) continue;
    if ((!its.stopped || its.thawed || its.alone) && Overdue()) {
      // It goes on without that memory, because it did not come to a stand in time. It is tried again, so seldom that
      // the process runs at least half of the time.
      if (now_ - served_.record->tried_at < 2 * kLongestMove) continue;
      served_.record->tried_at = now_;
    }
    process.record->moves = true;
    if (Stop(process)) {
      expected += bytes;
    } else if (its.still) {
      Do(process, Kind::kMoveIn, bytes, HolesOf(incoming, bytes, back, state_));
    }
  }
}

// True when nothing has moved for too long. Then all processes that can run do, from host memory if need be, and have
// their turn like everybody.
bool ResidencyPass::Overdue() const {
  const VGpuRecord& record = *served_.record;
  return now_ - std::max({record.since, record.tried_at, state_.last_moved}) > kLongestMove;
}

// Lets processes go on whose memory is where it is to be.
void ResidencyPass::LetRun() {
  VGpuRecord& record = *served_.record;
  const bool overdue = Overdue();
  bool all = true;
  for (const PlannedProcess& process : served_.processes) {
    if (process.now->away) continue;
    if (process.now->wanted > 0) all = false;  // its room is still being made: the turn has not begun
    if (process.now->stopped && GoesOn(process, overdue, all)) Run(process);
  }
  if ((!all && !overdue) || !served_.vgpu->Active(now_) || std::exchange(record.ready, true)) return;
  policy_.Ready(served_.vgpu->id, now_, all ? now_ - record.since : 0,
                /*typical=*/state_.pool.grew_at <= record.since);
  told_policy_ = true;
}

// Whether a stopped process runs from now on. If not, does what is missing; `all` becomes false if the turn of its vGPU
// has not begun because of that.
bool ResidencyPass::GoesOn(const PlannedProcess& process, bool overdue, bool& all) {
  const ProcessResidence& its = *process.now;
  const bool active = its.Active(now_);
  const std::uint64_t back = std::min(its.squeezed + its.recalled, its.Out());
  const bool comes_back = back > 0 && Free() >= back;
  const bool more = !overdue && its.swapped > 0 && its.Reachable(now_) &&
                    (comes_back || Less(served_.goal.target, served_.resident + served_.wanted) >= state_.chunk);
  if (its.moving != Moving::kNothing || process.record->moves || its.push > 0 || more) {
    all &= !active;
    LetRest(process);
    return false;
  }
  if (its.swapped > 0 && !active) {  // nobody needs it now
    LetRest(process);
    return false;
  }
  // A program whose line broke makes its addresses valid by itself.
  if (its.unsafe || its.may_be_in_file) {
    const bool settles = !its.CannotSettle();
    if (settles && its.Reachable(now_) && its.still) Do(process, Kind::kSettle);
    if (its.no_memory_to_settle || !settles) LetRest(process);  // its own memory may be what is in the way
    all = false;
    return false;
  }
  return true;
}

// A process that is to leave the GPU has drained. What can be moved goes out once, in whatever time that takes; then
// the program lets go of it. What stays is the driver's to save. At the end the process is stopped by its gate alone:
// the driver needs its channels.
void ResidencyPass::SendAway(const PlannedProcess& process) {
  const ProcessResidence& its = *process.now;
  ProcessRecord& record = *process.record;
  if (!its.away) {
    record.sent = false;
    return;
  }
  if (record.sent && its.thawed && its.Left()) return;
  if (Stop(process) || its.moving != Moving::kNothing || !its.still) return;
  const bool reachable = state_.mover_ready && its.Reachable(now_);
  if (!record.sent) {
    if (!reachable && (its.has_line || its.lost_line) && !state_.mover_hopeless) return;  // a mover comes
    record.sent = true;
    const std::uint64_t may_go = DownTo(state_.chunk, SwapLeft(state_, *served_.vgpu));
    const std::uint64_t bytes = std::min(DownTo(state_.unit, its.Movable()), may_go);
    if (bytes > 0 && reachable) return Do(process, Kind::kMoveOut, bytes);
  }
  if (its.Left()) {
    Do(process, Kind::kThaw);
  } else if (reachable) {
    Do(process, Kind::kPark);
  }
}

// It stays stopped. Its memory in host memory may go on to the file; the mover knows that already if it moved something
// out of it.
//
// Without a file a process that has rested for a while is not kept frozen, but its addresses are made valid and it is
// thawed behind its closed gate: one of its threads may be inside the driver, and wait for work that the driver
// itself submits and that nobody else knows. That ends in host memory. One that cannot reach host memory stays frozen.
void ResidencyPass::LetRest(const PlannedProcess& process) {
  const ProcessResidence& its = *process.now;
  ProcessRecord& record = *process.record;
  if (its.away || !its.stopped || (its.thawed && !its.keeps_peers) || its.moving != Moving::kNothing) return;
  if (its.keeps_peers) return (void)Stop(process);
  const bool could_be_moved = its.Reachable(now_) && its.still;
  if (its.peers && !its.alone) return FreePeers(process, could_be_moved);
  if (state_.file > 0) {
    if (its.alone) return;
    if (!its.may_be_in_file && could_be_moved && its.swapped > 0) Do(process, Kind::kRest);
    return;
  }
  if (record.moves || its.push > 0 || its.Active(now_)) {
    record.rests_since = kNever;
    return;
  }
  if (record.rests_since == kNever) record.rests_since = now_;
  if (now_ - record.rests_since < kRests || its.CannotSettle()) return;
  if (!its.unsafe || could_be_moved) Do(process, its.unsafe ? Kind::kSettle : Kind::kThaw);
}

// Its program's work on other GPUs may use its memory, so that stands still, too. It must not wait for the turns of
// others on this GPU, as it may have turns of its own, which come at other times. So every address is made valid, also
// where memory may be in the file, and the others go on.
void ResidencyPass::FreePeers(const PlannedProcess& process, bool could_be_moved) {
  const ProcessResidence& its = *process.now;
  Nanos& since = process.record->keeps_peers_since;
  since = process.record->moves || its.push > 0 ? kNever : std::min(since, now_);
  if (since == kNever) return;
  const Nanos waits = served_.vgpu->gang != GangTurn::kWaits ? kWaits : state_.Loads() ? kWaitsInGang : kRests;
  if (now_ - since < waits) {
    plan_.look_at = std::min(plan_.look_at, since + waits);
  } else if (!its.unsafe && !its.may_be_in_file) {
    Do(process, Kind::kFreePeers);
  } else if (could_be_moved && !its.CannotSettle()) {
    Do(process, Kind::kSettle);
  }
}

// False: it was stopped before, and its peers as well.
bool ResidencyPass::Stop(const PlannedProcess& process) {
  if (process.now->stopped && !process.now->thawed && !process.now->alone) return false;
  Do(process, Kind::kStop);
  return true;
}

void ResidencyPass::Run(const PlannedProcess& process) {
  ProcessRecord& record = *process.record;
  if (std::exchange(record.exchanging, false)) record.exchange.Done(process.now->moved_for - record.moved_before, now_);
  record.colder = 0;
  Do(process, Kind::kRun);
}

void ResidencyPass::Do(const PlannedProcess& process, Kind kind, std::uint64_t bytes, std::uint64_t holes) {
  const ProcessResidence& its = *process.now;
  const std::uint64_t room = its.room, resident = its.Movable(), wanted = its.pins ? 0 : its.wanted;
  Note(process, kind, bytes, holes);
  served_.room += its.room - room;
  served_.resident += its.Movable() - resident;
  served_.wanted += (its.pins ? 0 : its.wanted) - wanted;
  room_ += its.room - room;
}

void ResidencyPass::Note(const PlannedProcess& process, Kind kind, std::uint64_t bytes, std::uint64_t holes) {
  plan_.actions.push_back({.kind = kind, .process = process.now->id, .bytes = bytes, .holes = holes});
  if (kind == Kind::kRevokeCredit) return;
  if (kind == Kind::kStop || kind == Kind::kMoveOut || kind == Kind::kSqueeze || kind == Kind::kMoveIn ||
      kind == Kind::kRest)
    process.record->rests_since = process.record->keeps_peers_since = kNever;
  Apply(plan_.actions.back(), now_, state_.file > 0, *process.now);
}

// Room that the vGPU could be granted now.
std::uint64_t ResidencyPass::Free() const {
  return std::min(Less(served_.vgpu->limit.value_or(UINT64_MAX), served_.room), Less(state_.capacity, room_));
}

}  // namespace tessera::sched
