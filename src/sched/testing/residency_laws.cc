// The laws of plans and answers, worked out here independently of the planner (but for what may not go out,
// swap_bounds.h).
#include <algorithm>
#include <map>
#include <set>

#include "sched/residency/bytes.h"
#include "sched/residency/pool_policy.h"
#include "sched/residency/swap_bounds.h"
#include "sched/testing/residency_world.h"

namespace tessera::sched {
namespace {

using Kind = ResidencyActionKind;
using Reason = RoomAnswer::Reason;

std::uint64_t Without(std::uint64_t from, std::uint64_t bytes) { return from > bytes ? from - bytes : 0; }

std::uint64_t Room(const VGpuResidence& vgpu) {
  std::uint64_t room = 0;
  for (const ProcessResidence& process : vgpu.processes) room += process.room;
  return room;
}

std::uint64_t Room(const ResidencyState& state) {
  std::uint64_t sum = 0;
  for (const VGpuResidence& vgpu : state.vgpus) sum += Room(vgpu);
  return sum;
}

std::uint64_t OutSoon(const VGpuResidence& vgpu) {
  std::uint64_t sum = 0;
  for (const ProcessResidence& process : vgpu.processes) {
    sum += process.swapped + process.stranded;
    if (process.moving == Moving::kOut) sum += process.ordered - process.done;
  }
  return sum;
}

// Of the actions for one process, which may stand together in a plan.
std::string Contradiction(const std::set<Kind>& kinds) {
  const auto count = [&](std::initializer_list<Kind> some) {
    return std::ranges::count_if(some, [&](Kind kind) { return kinds.contains(kind); });
  };
  if (count({Kind::kStop, Kind::kRun, Kind::kThaw, Kind::kFreePeers}) > 1) return "it is to stop and to go on";
  if (count({Kind::kMoveOut, Kind::kMoveIn, Kind::kSettle, Kind::kPark, Kind::kRest}) > 1)
    return "the mover gets two orders for it";
  if (count({Kind::kMoveOut, Kind::kMoveIn, Kind::kSettle, Kind::kPark, Kind::kRest}) > 0 &&
      count({Kind::kStop, Kind::kRun, Kind::kThaw, Kind::kFreePeers}) > 0)
    return "it is moved while it stops or goes on";
  if (count({Kind::kGrant, Kind::kDropWish}) > 1) return "its wish is granted and dropped";
  return "";
}

// Whether an action needs to know the memory of all processes.
bool NeedsAll(Kind kind) { return kind != Kind::kStop && kind != Kind::kRevokeCredit && kind != Kind::kDropWish; }

class Checker {
 public:
  Checker(const ResidencyState& state, Nanos now) : before_(state), after_(state), now_(now) {}

  std::vector<std::string> Check(const ResidencyPlan& plan) {
    std::map<ProcessId, std::set<Kind>> kinds;
    for (const ResidencyAction& action : plan.actions) {
      if (action.kind == Kind::kGrowPool) {
        Require(action.bytes > before_.pool.wanted, "the pool does not grow");
        Require(action.bytes <= before_.pool.most, "the pool becomes larger than it may");
        Apply(action, after_.pool);
        continue;
      }
      if (action.kind == Kind::kPreparePool) {
        Require(action.bytes != after_.pool.Goal(), "the mover is told what it knows");
        Require(action.bytes <= before_.pool.most, "more is prepared than the pool may have");
        Require(action.bytes >= PoolNeeded(before_), "less is prepared than is needed");
        Apply(action, after_.pool);
        continue;
      }
      VGpuResidence* vgpu = nullptr;
      ProcessResidence* process = nullptr;
      for (VGpuResidence& each : after_.vgpus) {
        for (ProcessResidence& its : each.processes) {
          if (its.id == action.process) std::tie(vgpu, process) = std::tuple(&each, &its);
        }
      }
      if (!process) {
        Require(false, "an action is for no process");
        continue;
      }
      Require(kinds[action.process].insert(action.kind).second, "an action stands twice in the plan");
      Require(!before_.AwaitsMissing(now_) || !NeedsAll(action.kind), "it does not wait for those who are missing");
      CheckAction(action, *vgpu, *process);
    }
    for (const auto& [process, its] : kinds) {
      const std::string why = Contradiction(its);
      Require(why.empty(), why);
    }
    Require(!plan.pressed || plan.look_at < kNever, "nobody looks again while something is pressed");
    Require(plan.look_at >= now_, "the next look is in the past");
    return broken_;
  }

 private:
  void CheckAction(const ResidencyAction& action, VGpuResidence& vgpu, ProcessResidence& process) {
    const std::uint64_t all = Room(after_), room = Room(vgpu);
    const ProcessResidence was = process;
    // Revoked credit may be taken before it is gone: others must not have got it in the same plan.
    if (action.kind != Kind::kRevokeCredit) Apply(action, now_, after_.file > 0, process);
    Require(Room(after_) <= std::max(all, after_.capacity), "more room is granted than there is");
    Require(!vgpu.limit || Room(vgpu) <= std::max(room, *vgpu.limit), "a vGPU gets more than its limit");
    switch (action.kind) {
      case Kind::kMoveOut:
        RequireMovable(was);
        Require(action.bytes > 0 && action.bytes % after_.unit == 0, "no whole units go out");
        Require(action.bytes <= was.Movable(), "more goes out than can be moved");
        if (vgpu.swap) Require(OutSoon(vgpu) <= *vgpu.swap, "more is out than memory.swap.max");
        RequirePromise(vgpu, was);
        break;
      case Kind::kSqueeze:
        RequireMovable(was);
        Require(action.bytes > 0 && action.bytes <= was.holed, "more is squeezed than has holes");
        Require(was.squeezed == 0, "chunks are squeezed while others are not back");
        if (vgpu.swap) Require(OutSoon(vgpu) <= *vgpu.swap, "more is out than memory.swap.max");
        break;
      case Kind::kMoveIn:
        Require(!was.away, "memory of a process comes in that is to be away");
        Require(was.moving == Moving::kNothing || was.moving == Moving::kIn, "it is brought in while it goes out");
        Require(was.stopped && !was.thawed && !was.alone && was.still, "a process that runs is moved");
        Require(was.has_line && now_ >= was.stuck_until && after_.mover_ready, "the mover cannot reach it");
        Require(action.bytes > 0 && was.Coming() + action.bytes <= was.swapped + was.holes_out,
                "more comes in than is out");
        Require(action.holes == kAnyHoles || action.holes <= action.bytes, "more holes come in than memory");
        // Less than a chunk comes where a whole one has no place yet.
        Require(action.holes == kAnyHoles || action.bytes < after_.chunk || !AllFitsWhole(vgpu),
                "chunks come back sparse though there is room");
        break;
      case Kind::kSettle:
      case Kind::kRest:
        RequireMovable(was);
        Require(!was.away, "a process is settled, or rests, that is to be away");
        Require(action.kind == Kind::kSettle || after_.file > 0, "there is no file");
        Require(action.kind != Kind::kSettle || !was.CannotSettle(), "a process is settled that cannot be");
        break;
      case Kind::kPark:
        RequireMovable(was);
        Require(was.away && was.swapped > 0 && !was.parked, "nobody needs that it lets go of memory");
        break;
      case Kind::kRun:
        Require(!was.away, "a process runs that is to be away");
        Require(was.stopped && !was.unsafe, "a process runs whose addresses are not valid");
        Require(was.moving == Moving::kNothing, "a process runs that is moved");
        Require(!was.may_be_in_file || !after_.mover_ready, "a process runs of which memory may be in the file");
        break;
      case Kind::kThaw:
        Require(was.stopped && !was.thawed && was.moving == Moving::kNothing, "a process is thawed that is moved");
        Require(was.away ? was.Left() : !was.unsafe && after_.file == 0, "a process is thawed that is not safe");
        Require(!was.Active(now_), "a process is thawed that has something to do");
        break;
      case Kind::kFreePeers:
        Require(!was.away, "peers go on though the program is to be away");
        Require(was.peers && was.stopped && !was.thawed && !was.alone, "its peers are not stopped");
        Require(!was.unsafe && was.moving == Moving::kNothing, "peers go on that reach memory which is moved");
        Require(!was.may_be_in_file, "peers go on that reach memory which may be in the file");
        break;
      case Kind::kStop:
        Require(!was.stopped || was.thawed || was.alone, "it is stopped twice");
        break;
      case Kind::kGrant:
        Require(action.bytes == was.wanted && was.wanted > 0, "nobody asked for that");
        break;
      case Kind::kRevokeCredit:
        Require(was.credit > 0, "there is no credit");
        Require(was.Granted(now_) == 0 || was.wanted > 0, "what it waited for is taken back at once");
        break;
      case Kind::kDropWish:
        Require(was.wanted > 0, "there is no wish");
        break;
      case Kind::kEndPush:
        Require(was.push > 0 || action.bytes > 0, "there is no push");
        break;
      case Kind::kGrowPool:
      case Kind::kPreparePool:
        break;
    }
  }

  // Memory up to the request stays while the vGPU works, but for a chunk that moves as a whole, and for what promises
  // and pinned memory together are more than there is. What an operator, an exchange or other memory of the same vGPU
  // asks for may go.
  void RequirePromise(const VGpuResidence& vgpu, const ProcessResidence& was) {
    if (was.push > 0 || was.hot_out > 0 || !vgpu.Active(now_)) return;
    std::uint64_t resident = 0, pinned = 0, all = 0;
    for (const ProcessResidence& process : vgpu.processes) {
      if (process.push > 0 || process.hot_out > 0) return;
      const std::uint64_t going = process.moving == Moving::kOut ? process.ordered : 0;
      resident +=
          Without(process.room - process.credit, going) + process.wanted + process.recalled + process.Granted(now_);
      pinned += process.pinned;
      all += process.room - process.credit + process.swapped;
    }
    const std::uint64_t promised = std::min({vgpu.request, all, vgpu.limit.value_or(UINT64_MAX)});
    const std::uint64_t chunks = after_.chunk * vgpu.processes.size();
    Require(resident + chunks + Overcommitted() > promised || pinned > promised,
            "memory goes out that was promised to one that works");
  }

  std::uint64_t Overcommitted() const {
    std::uint64_t claimed = 0;
    for (const VGpuResidence& vgpu : after_.vgpus) {
      std::uint64_t pinned = 0;
      for (const ProcessResidence& process : vgpu.processes) pinned += process.pinned + process.WantedPinned(now_);
      claimed += std::max({pinned, vgpu.request, pinned + Kept(after_, vgpu, now_)});
    }
    return Less(claimed, after_.capacity);
  }

  // Whether the GPU, and the vGPU's limit, hold all that there is, in whole chunks.
  bool AllFitsWhole(const VGpuResidence& asked) const {
    std::uint64_t sum = 0;
    for (const VGpuResidence& vgpu : before_.vgpus) {
      std::uint64_t its = 0;
      for (const ProcessResidence& process : vgpu.processes)
        its += process.room + process.swapped + process.holes_out + process.wanted;
      if (vgpu.id == asked.id && vgpu.limit && its > *vgpu.limit) return false;
      sum += std::max(its, vgpu.request);
    }
    return sum <= before_.capacity;
  }

  void RequireMovable(const ProcessResidence& was) {
    Require(was.stopped && !was.thawed && !was.alone && was.still, "a process that runs is moved");
    Require(was.moving == Moving::kNothing, "it is moved twice");
    Require(was.has_line && now_ >= was.stuck_until && after_.mover_ready, "the mover cannot reach it");
  }

  void Require(bool holds, const std::string& what) {
    if (!holds) broken_.push_back(what);
  }

  const ResidencyState& before_;
  ResidencyState after_;
  const Nanos now_;
  std::vector<std::string> broken_;
};

// Bytes of the GPU that the vGPU has whatever is moved, if `wish` (null: none) is its own. `for_good`: also later.
std::uint64_t Stays(const ResidencyState& state, const VGpuResidence& vgpu, const RoomWish* wish, bool for_good,
                    Nanos now) {
  std::uint64_t pinned = 0, movable = 0, in_use = 0, soon = 0, stranded = 0;
  for (const ProcessResidence& process : vgpu.processes) {
    const bool asks = wish && wish->process == process.id;
    const bool pins = asks ? wish->pins : process.pins;
    const std::uint64_t granted = now - process.granted_at < kSecond ? process.credit : 0;
    const std::uint64_t wanted = (asks ? wish->bytes : process.wanted) + granted;
    pinned += process.pinned;
    soon += pins ? wanted : 0;
    const std::uint64_t allocated = (process.allocated + state.chunk - 1) / state.chunk * state.chunk;
    const std::uint64_t gone = process.moving == Moving::kOut ? process.done : 0;
    const std::uint64_t in = Without(process.room - process.credit - process.pinned, gone) + (pins ? 0 : wanted);
    movable += in + Without(std::min(process.swapped, allocated), Without(process.Coming(), process.coming_holes));
    stranded += std::min(process.stranded, Without(allocated, process.swapped));
    in_use += in + Without(process.swapped, Without(process.Coming(), process.coming_holes));
  }
  const std::uint64_t may_be_out = Without(vgpu.swap.value_or(0) / state.chunk * state.chunk, stranded);
  const std::uint64_t kept = vgpu.swap ? Without(movable, may_be_out) : 0;
  if (wish) return kept;
  if (for_good) return std::max(vgpu.request, pinned + kept);
  const std::uint64_t limit = std::max(kept, Without(vgpu.limit.value_or(UINT64_MAX), pinned + soon));
  const std::uint64_t promised = vgpu.Active(now) ? Without(vgpu.request, pinned + soon) : 0;
  return pinned + std::min({in_use, limit, std::max(promised, kept)});
}

}  // namespace

std::vector<std::string> BrokenLaws(const ResidencyState& state, const ResidencyPlan& plan, Nanos now) {
  return Checker(state, now).Check(plan);
}

std::vector<std::string> BrokenLaws(const ResidencyState& state, const RoomWish& wish, const RoomAnswer& answer,
                                    bool pressed, Nanos now) {
  std::vector<std::string> broken;
  const auto require = [&](bool holds, const char* what) {
    if (!holds) broken.emplace_back(what);
  };
  const VGpuResidence* vgpu = nullptr;
  const ProcessResidence* process = nullptr;
  for (const VGpuResidence& each : state.vgpus) {
    const auto found = std::ranges::find(each.processes, wish.process, &ProcessResidence::id);
    if (found != each.processes.end()) std::tie(vgpu, process) = std::tuple(&each, &*found);
  }
  if (!process) return {answer.reason == Reason::kUnknown ? std::vector<std::string>{} : std::vector{std::string("?")}};
  std::uint64_t pinned = process->recalled, lent = 0, going = 0;
  for (const ProcessResidence& each : vgpu->processes) {
    pinned += each.pinned;
    lent += each.credit + each.empty;
    going += each.moving == Moving::kOut ? each.ordered : 0;
  }
  const std::uint64_t bytes = wish.bytes;
  const bool all = process->no_host_memory && !process->away;
  const std::uint64_t needed = all ? pinned - process->recalled + process->All() : pinned;
  const std::uint64_t own = Stays(state, *vgpu, &wish, false, now) + (wish.pins ? bytes : 0);
  const bool promised = pinned + own <= vgpu->request;
  std::uint64_t others = 0, others_later = 0;
  for (const VGpuResidence& each : state.vgpus) {
    if (&each == vgpu) continue;
    others += Stays(state, each, nullptr, false, now);
    others_later += Stays(state, each, nullptr, !promised, now);
  }
  const std::uint64_t limit = vgpu->limit.value_or(UINT64_MAX);
  const std::uint64_t free = std::min(Without(limit, Room(*vgpu)), Without(state.capacity, Room(state)));
  if (answer.kind == RoomAnswer::Kind::kRefuse)
    require(!state.AwaitsMissing(now), "it is refused before it is known what the others have");
  switch (answer.reason) {
    case Reason::kNone:
      require(answer.kind != RoomAnswer::Kind::kRefuse, "it is refused without a reason");
      break;
    case Reason::kUnknown:
      require(false, "the process is there");
      break;
    case Reason::kPinned:
      require(pinned + bytes > std::min(limit, state.capacity), "beside what is pinned there is place for it");
      break;
    case Reason::kNoHostMemory:
      require(all && needed + bytes > std::min(limit, state.capacity), "beside what it has there is place for it");
      break;
    case Reason::kKeptByOthers:
      require(others + needed + bytes > state.capacity || others_later + pinned + own > state.capacity,
              "others leave place for it");
      break;
    case Reason::kSwapBound: {
      const std::uint64_t may_be_out = vgpu->swap.value_or(state.pool.most + state.file);
      require(Without(limit, Room(*vgpu)) + lent + going + Without(may_be_out, OutSoon(*vgpu)) < bytes,
              "enough of the vGPU could go out");
      break;
    }
    case Reason::kHostMemoryFull:
      require(bytes > free && now < state.pool.full_until, "host memory is not full, or not needed");
      break;
    case Reason::kNoMover:
      require(bytes > free && state.mover_hopeless, "there is a mover, or it is not needed");
      break;
  }
  require(answer.kind != RoomAnswer::Kind::kRefuse || bytes == 0 || answer.most < bytes,
          "it could have what it asks for");
  if (answer.kind == RoomAnswer::Kind::kGrant) {
    require(bytes + answer.credit <= free, "more room is granted than is free");
    require(!pressed && !process->stopped && bytes > 0, "it is granted out of turn");
    require(!state.AwaitsMissing(now), "it is granted before it is known what the others have");
  }
  return broken;
}

}  // namespace tessera::sched
