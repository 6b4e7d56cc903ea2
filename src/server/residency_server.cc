#include "server/residency_server.h"

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "base/size.h"
#include "server/chunks.h"
#include "server/log.h"
#include "server/residency_trace.h"

namespace tessera::server {
namespace {

using Doing = Residence::Doing;

constexpr std::uint64_t kChunk = wire::kChunkBytes;
// What is ordered at least where memory comes in while other memory goes out: so much that the mover always has some
// batches under way, and so little that both directions are busy most of the time.
std::uint64_t StepOf(std::uint64_t capacity) {
  return std::clamp<std::uint64_t>(capacity / 64 / kChunk, 2, 4) * kChunk;
}
// Room that is lent in advance where there is plenty, so that not each allocation costs a question.
constexpr std::uint64_t kMostCredit = kGiB;
// A wish that is not repeated for so long is nobody's any more: programs repeat them.
constexpr Nanos kWishLasts = 2 * kSecond;
// What a program waited for is not taken back before it could take it.
constexpr Nanos kTakesIt = kSecond;
// So many movers that cannot start are no accident.
constexpr int kGiveUp = 3;
// How often it is looked whether a mover that is gone has ended.
constexpr Nanos kEndsSoon = 10 * kMillisecond;
// Where nothing was moved for so long nothing will be: a program is stopped by somebody else, a disk or the mover
// hangs.
constexpr Nanos kLongestMove = 10 * kSecond;
// Who does nothing for so long may well do so for longer.
constexpr Nanos kRests = kSecond;
// How often it is looked whether a program has come to a stand, where nothing tells.
constexpr Nanos kLookAgain = kMillisecond;

}  // namespace

ResidencyServer::ResidencyServer(EventLoop& loop, std::uint32_t gpu, const sched::ResidencyConfig& config,
                                 std::uint64_t swap_max, std::uint64_t file, const std::vector<VGpu*>& vgpus, Host host)
    : loop_(loop),
      gpu_(gpu),
      swap_max_(DownToChunks(swap_max)),
      file_(file),
      vgpus_(vgpus),
      host_(std::move(host)),
      policy_(config),
      timer_(loop_, [this] { Work(); }) {}

// ---- vGPUs and processes ----

void ResidencyServer::Add(const VGpu& vgpu) {
  policy_.Add(vgpu.id, vgpu.spec.compute.weight, vgpu.spec.compute.priority, MonotonicNow());
}

void ResidencyServer::Update(const VGpu& vgpu) {
  policy_.Update(vgpu.id, vgpu.spec.compute.weight, vgpu.spec.compute.priority, MonotonicNow());
  Work();
}

void ResidencyServer::Remove(const VGpu& vgpu) {
  standings_.erase(vgpu.id);
  policy_.Remove(vgpu.id, MonotonicNow());
  Work();
}

void ResidencyServer::Join(Process& process, std::uint64_t had) {
  process.residence.brought = had > 0 ? host_.capacity() + swap_max_ + file_ : 0;
  if (process.page->guard.unsafe == 0) return;
  Stop(process, MonotonicNow());
  Work();
}

void ResidencyServer::Leave(Process& process) {
  if (process.residence.number != 0 && mover_ready_)
    mover_->Send({.type = wire::MoverType::kGone, .program = process.residence.number});
  const Moves moves = MovesOf(process, MonotonicNow());
  Moves& before = process.vgpu->moved_before;
  before = {before.out + moves.out, before.in + moves.in, before.time + moves.time};
  process.residence = {};
  Work();
}

// ---- room ----

void ResidencyServer::AddRoom(Process& process, std::uint64_t bytes) {
  process.residence.room += bytes;
  process.memory.most_charged = std::max(process.memory.most_charged, process.memory.Known());
}

void ResidencyServer::Grant(Process& process, std::uint64_t bytes) {
  AddRoom(process, bytes);
  process.page->room_credit.fetch_add(static_cast<std::int64_t>(bytes));
}

RoomAnswer ResidencyServer::Ask(Process& process, std::uint64_t bytes) {
  Residence& residence = process.residence;
  const Nanos now = MonotonicNow();
  const auto promise = host_.promise(*process.vgpu);
  // Nothing that can be moved away would make room for that. What is pinned of its own is in the way, too.
  std::uint64_t pinned = Recalled(process);
  for (const Process* each : process.vgpu->processes) pinned += Pinned(*each);
  const std::uint64_t most = promise.value_or(host_.capacity());
  if (pinned > most || bytes > most - pinned) return RoomAnswer::kNever;
  if (bytes == 0) {
    Work();
    return RoomAnswer::kWait;
  }
  residence.wanted = bytes;
  residence.wanted_at = now;
  if (!promise && std::max(bytes, Kept(*process.vgpu)) > Less(host_.capacity(), pinned + KeptBeside(*process.vgpu))) {
    residence.wanted = 0;
    return RoomAnswer::kNever;
  }
  std::uint64_t taken = 0;  // by the vGPU
  for (const Process* each : process.vgpu->processes) taken += each->residence.room;
  const std::uint64_t free = promise ? Less(*promise, taken) : Free();
  if (promise && bytes > free &&
      TakenInAdvance(*process.vgpu) + MaySwap(*process.vgpu) + GoingOut(*process.vgpu) < bytes - free) {
    residence.wanted = 0;
    return RoomAnswer::kNever;
  }
  if (!residence.stopped && !was_pressed_ && bytes <= free) {
    residence.wanted = 0;
    AddRoom(process, bytes);
    // A part of what is plenty, in advance.
    Grant(process, DownToChunks(std::min(kMostCredit, (free - bytes) / 16)));
    if (!mover_ && Used() > Half(host_.capacity())) Work();
    return RoomAnswer::kGranted;
  }
  if ((now < pool_full_until_ || failed_starts_ >= kGiveUp) && bytes > free) {
    residence.wanted = 0;
    return RoomAnswer::kNever;
  }
  Work();
  return RoomAnswer::kWait;  // what is granted meanwhile comes as credit
}

std::uint64_t ResidencyServer::TakenInAdvance(const VGpu& vgpu) {
  std::uint64_t credit = 0;
  for (const Process* process : vgpu.processes)
    credit += Credit(*process) + process->page->empty.load(std::memory_order_relaxed);
  return credit;
}

std::uint64_t ResidencyServer::GoingOut(const VGpu& vgpu) {
  std::uint64_t going = 0;
  for (const Process* process : vgpu.processes) {
    if (process->residence.doing == Doing::kEvicting) going += process->residence.ordered;
  }
  return going;
}

std::uint64_t ResidencyServer::OutSoon(const VGpu& vgpu) {
  std::uint64_t out = 0;
  for (const Process* process : vgpu.processes) {
    out += Swapped(*process);
    if (process->residence.doing == Doing::kEvicting) out += process->residence.ordered - Untold(*process);
  }
  return out;
}

// Credit that it waited for and has not taken yet.
std::uint64_t ResidencyServer::Granted(const Process& process) {
  const bool stands = MonotonicNow() - process.residence.granted_at < kTakesIt;
  return stands ? Credit(process) : 0;
}

void ResidencyServer::TakeBackCredits() {
  const Nanos now = MonotonicNow();
  ForEach([now](Process& process) {
    if (now - process.residence.granted_at < kTakesIt) return;
    const std::int64_t credit = process.page->room_credit.exchange(0);
    if (credit > 0) process.residence.room = Less(process.residence.room, static_cast<std::uint64_t>(credit));
  });
}

void ResidencyServer::GrantWishes(VGpu& vgpu, std::uint64_t target) {
  for (Process* process : vgpu.processes) {
    Residence& residence = process->residence;
    if (residence.wanted == 0) continue;
    const bool promised = host_.promise(vgpu).has_value();
    if (Resident(vgpu) + residence.wanted > target || (!promised && residence.wanted > Free())) continue;
    Grant(*process, std::exchange(residence.wanted, 0));
    residence.granted_at = MonotonicNow();
    process->page.Ring();
  }
}

// ---- what is right, and what is done about it ----

void ResidencyServer::Work() {
  again_ = true;
  if (std::exchange(working_, true)) return;
  while (std::exchange(again_, false)) Look();
  working_ = false;
  NoteWaits(MonotonicNow());
}

// Who has something to do, and is kept from it by where memory lies.
void ResidencyServer::NoteWaits(Nanos now) {
  for (VGpu* vgpu : vgpus_) {
    bool any = false;
    for (Process* process : vgpu->processes) {
      Residence& residence = process->residence;
      const bool waits = residence.wanted > 0 || (residence.stopped && Active(*process));
      any |= waits;
      if (waits && residence.waits_since == 0) residence.waits_since = now;
      if (!waits && residence.waits_since != 0) residence.waited += now - std::exchange(residence.waits_since, 0);
    }
    vgpu->memory_pressure.Note(now, any);
  }
}

void ResidencyServer::Look() {
  const Nanos now = MonotonicNow();
  if (mover_gone_ && mover_->Ended()) {
    mover_.reset();
    mover_gone_ = false;
  }
  const bool pressed = Pressed();
  const bool begins = pressed && !was_pressed_;
  was_pressed_ = pressed;
  if (!pressed) {
    const bool may_need_it = swap_max_ > 0 && Used() > Half(host_.capacity());
    if (may_need_it) EnsureMover(now);
    GrowPool();
    timer_.Arm(mover_gone_ ? now + kEndsSoon : may_need_it && !mover_ ? next_start_ : kNever);
    return;
  }
  TakeBackCredits();
  if (begins) log::Debug("GPU {}: memory is moved from now on", gpu_);
  ForEach([&](Process& process) {
    if (now - process.residence.wanted_at > kWishLasts) process.residence.wanted = 0;
  });
  EnsureMover(now);
  GrowPool();
  Inform(now);
  policy_.Advance(now);
  (void)policy_.TakeDecisions();  // each look asks for all of them as they stand
  // Who must go makes room for who comes.
  for (VGpu* vgpu : vgpus_) {
    if (!DecisionFor(*vgpu).runs) Serve(*vgpu, now);
  }
  for (VGpu* vgpu : vgpus_) {
    if (DecisionFor(*vgpu).runs) Serve(*vgpu, now);
  }
  Nanos next = std::min(policy_.NextDeadline(), now + (mover_gone_ ? kEndsSoon : 100 * kMillisecond));
  ForEach([&](const Process& process) {
    const Residence& residence = process.residence;
    if (residence.stopped && !residence.thawed && !host_.still(process)) next = now + kLookAgain;
  });
  timer_.Arm(next);
}

void ResidencyServer::Inform(Nanos now) {
  std::uint64_t taken = 0;  // by promises, and by what cannot be moved
  for (const VGpu* vgpu : vgpus_) {
    std::uint64_t pinned = 0, demand = 0;
    for (const Process* process : vgpu->processes) {
      pinned += Pinned(*process);
      demand += Has(*process) + process->residence.wanted + Granted(*process);
    }
    const auto promise = host_.promise(*vgpu);
    const std::uint64_t kept = Kept(*vgpu);  // takes no turns, nor do promises
    taken += promise ? std::max(*promise, pinned) : pinned + kept;
    policy_.Demand(vgpu->id, promise ? 0 : Less(demand, kept), now);
    policy_.Resident(vgpu->id, promise ? 0 : Less(Resident(*vgpu), kept), now);
    Active(*vgpu) ? policy_.Active(vgpu->id, now) : policy_.Idle(vgpu->id, now);
  }
  policy_.SetCapacity(Less(host_.capacity(), taken), now);
}

// One that was promised its memory takes no turns: it has what it was promised, and goes on with that.
ResidencyServer::Decision ResidencyServer::DecisionFor(const VGpu& vgpu) const {
  if (const auto promise = host_.promise(vgpu)) {
    std::uint64_t pinned = 0;
    for (const Process* process : vgpu.processes) pinned += Pinned(*process);
    return {Less(*promise, pinned), true};
  }
  const auto decision = policy_.DecisionFor(vgpu.id);
  return {decision.target + Kept(vgpu), decision.runs};
}

void ResidencyServer::NoteDecision(const VGpu& vgpu, Nanos now) {
  Standing& standing = standings_[vgpu.id];
  const Decision decision = DecisionFor(vgpu);
  const Decision before = std::exchange(standing.decision, decision);
  if (decision != before) Trace(vgpu, decision.target, decision.runs, now);
  // While it is not carried out it is the same move, however its target changes on the way.
  const bool begins = decision.runs && (!before.runs || (standing.ready && decision.target > before.target));
  if (begins) standing.since = now;
  if (begins || !decision.runs) standing.ready = false;
}

void ResidencyServer::Serve(VGpu& vgpu, Nanos now) {
  NoteDecision(vgpu, now);
  const Decision decision = DecisionFor(vgpu);
  if (!mover_ready_) {
    LetAllRun(vgpu, now);
    if (decision.runs) GrantWishes(vgpu, decision.target);
    return;
  }
  std::uint64_t needed = Resident(vgpu);
  if (decision.runs) {
    for (const Process* process : vgpu.processes) {
      const Residence& residence = process->residence;
      needed += residence.wanted;
      // In place of what else it has there, if need be. What is on its way has its room.
      needed += Less(Recalled(*process), residence.doing == Doing::kLoading ? residence.ordered : 0);
    }
  } else {
    for (Process* process : vgpu.processes) {
      if (!process->residence.thawed) Stop(*process, now);
    }
  }
  for (Process* process : vgpu.processes) {
    process->residence.leaves = false;
    if (decision.runs) BeginExchange(*process, now);
  }
  Evict(vgpu, Less(needed, decision.target), now);
  if (!decision.runs) {
    for (Process* process : vgpu.processes) LetRest(*process, now);
    return;
  }
  GrantWishes(vgpu, decision.target);
  Load(vgpu, decision.target, now);
  LetRun(vgpu, now);
}

// What more of a vGPU its memory.swap.max lets into host memory.
std::uint64_t ResidencyServer::SwapLeft(const VGpu& vgpu) const {
  return Less(vgpu.spec.memory.swap.value_or(swap_max_ + file_), OutSoon(vgpu));
}

// What more of it may go there to make room. Without a word about it: what it may allocate, or has, beyond its limit.
std::uint64_t ResidencyServer::MaySwap(const VGpu& vgpu) const {
  const MemoryTerms& terms = vgpu.spec.memory;
  if (terms.swap || !terms.limit) return SwapLeft(vgpu);
  std::uint64_t allocated = 0;
  for (const Process* process : vgpu.processes) allocated += process->memory.Current();
  // Whole chunks go, so that a part of one may be needed.
  return Less(UpToChunks(Less(std::max(terms.max.value_or(0), allocated), *terms.limit)), OutSoon(vgpu));
}

// What of a vGPU without a limit has to be on the GPU, with what it waits for, because memory.swap.max lets no more of
// it out. What it says of its host memory is believed up to what it has allocated.
std::uint64_t ResidencyServer::Kept(const VGpu& vgpu) const {
  const MemoryTerms& terms = vgpu.spec.memory;
  if (!terms.swap || host_.promise(vgpu)) return 0;
  std::uint64_t has = 0;
  for (const Process* process : vgpu.processes) {
    has += Has(*process, UpToChunks(process->memory.Current())) + process->residence.wanted + Granted(*process);
  }
  return Less(has, DownToChunks(*terms.swap));
}

// What of the GPU others have for good: promises, what is pinned, and what memory.swap.max keeps there.
std::uint64_t ResidencyServer::KeptBeside(const VGpu& vgpu) const {
  std::uint64_t kept = 0;
  for (const VGpu* other : vgpus_) {
    if (other == &vgpu) continue;
    std::uint64_t pinned = 0;
    for (const Process* process : other->processes) pinned += Pinned(*process);
    const auto promise = host_.promise(*other);
    kept += promise ? std::max(*promise, pinned) : pinned + Kept(*other);
  }
  return kept;
}

// One that has all it may have on the GPU, and would rather have other memory there: what it uses least goes, and what
// it uses most comes in by itself then. Host memory for that must be there already: making it takes longer.
void ResidencyServer::BeginExchange(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (residence.stopped || residence.doing != Doing::kNothing || residence.wanted > 0 || residence.push > 0 ||
      now < residence.stuck_until || !Active(process))
    return;
  std::uint64_t bytes =
      std::min({residence.exchange.Bytes(HotOut(process), now), Movable(process), Less(pool_, pool_used_)});
  if (process.vgpu->spec.memory.swap) bytes = std::min(bytes, SwapLeft(*process.vgpu));
  residence.colder = DownToChunks(bytes);
  if (residence.colder == 0) return;
  residence.exchanging = true;
  residence.moving_before = residence.moving;
  log::Debug("process {}: {} of its memory is exchanged for what it uses more", process.pid,
             FormatSize(residence.colder));
}

void ResidencyServer::Evict(VGpu& vgpu, std::uint64_t excess, Nanos now) {
  std::vector<Process*> victims = vgpu.processes;
  std::ranges::sort(victims, [](const Process* a, const Process* b) {
    return std::tuple(Active(*a), Movable(*b), a->pid) < std::tuple(Active(*b), Movable(*a), b->pid);
  });
  excess = Less(excess, GoingOut(vgpu));
  std::uint64_t may_go = MaySwap(vgpu), may_be_pushed = SwapLeft(vgpu);
  for (Process* process : victims) {
    Residence& residence = process->residence;
    const std::uint64_t movable = DownToChunks(Movable(*process));
    const std::uint64_t pushed = std::min(UpToChunks(residence.push), movable);
    const std::uint64_t bytes =
        std::max({std::min({UpToChunks(excess), movable, DownToChunks(may_go)}),
                  std::min(pushed, DownToChunks(may_be_pushed)), std::min(residence.colder, movable)});
    if (residence.doing != Doing::kNothing || now < residence.stuck_until || residence.number == 0) continue;
    if (bytes == 0) {
      if (std::exchange(residence.push, 0) > 0 && pushed > 0) residence.evict_error = EDQUOT;
      continue;
    }
    if (!mover_ready_) return;
    residence.leaves = true;
    Stop(*process, now);
    if (!host_.still(*process)) continue;
    if (Order(*process, Doing::kEvicting, bytes, now)) {
      residence.push = residence.colder = 0;
      residence.evict_error = bytes < pushed ? EDQUOT : 0;
      excess = Less(excess, bytes);
      may_go = Less(may_go, bytes);
      may_be_pushed = Less(may_be_pushed, bytes);
    }
  }
}

void ResidencyServer::Load(VGpu& vgpu, std::uint64_t target, Nanos now) {
  if (!Active(vgpu)) return;  // it comes when it is needed
  for (Process* process : vgpu.processes) {
    Residence& residence = process->residence;
    const bool loads = residence.doing == Doing::kLoading;
    const std::uint64_t coming = Coming(*process);
    const std::uint64_t out = Less(Swapped(*process), coming);
    if (out == 0 || residence.number == 0 || now < residence.stuck_until || residence.push > 0 ||
        (residence.doing != Doing::kNothing && !loads))
      continue;
    const std::uint64_t lacks = DownToChunks(Less(target, Resident(vgpu) + Wanted(vgpu)));
    std::uint64_t bytes = std::min(out, lacks);
    if (!host_.promise(vgpu)) bytes = std::min(bytes, DownToChunks(Free()));
    if (bytes == 0 || (bytes < StepOf(host_.capacity()) && bytes < out && bytes < lacks)) continue;
    Stop(*process, now);
    if (!host_.still(*process)) continue;
    AddRoom(*process, bytes);
    if (!Order(*process, Doing::kLoading, bytes, now)) residence.room -= bytes;
  }
}

// Lets those go on whose memory is where it is to be.
void ResidencyServer::LetRun(VGpu& vgpu, Nanos now) {
  const std::uint64_t target = DecisionFor(vgpu).target;
  Standing& standing = standings_[vgpu.id];
  // Then who can runs, from host memory if need be, and has its turn like everybody.
  const bool overdue = now - std::max(standing.since, last_moved_) > kLongestMove;
  bool all = true;
  for (Process* process : vgpu.processes) {
    Residence& residence = process->residence;
    if (residence.wanted > 0) all = false;  // what it waits for is still being made: its turn has not begun
    if (!residence.stopped) continue;
    const std::uint64_t out = Swapped(*process);
    const bool more = !overdue && out > 0 && residence.number != 0 && now >= residence.stuck_until &&
                      Less(target, Resident(vgpu) + Wanted(vgpu)) >= kChunk;
    if (residence.doing != Doing::kNothing || residence.leaves || residence.push > 0 || more) {
      all &= !Active(*process);
      LetRest(*process, now);
      continue;
    }
    if (out > 0 && !Active(*process)) {  // nobody needs it now
      LetRest(*process, now);
      continue;
    }
    // A program whose line broke makes its addresses valid by itself.
    if (process->page->guard.unsafe != 0 || residence.rests) {
      if (residence.number != 0 && now >= residence.stuck_until && host_.still(*process))
        Order(*process, Doing::kSettling, 0, now);
      if (residence.settle_error == ENOMEM) LetRest(*process, now);  // its own memory may be what is in the way
      all = false;
      continue;
    }
    Run(*process, now);
  }
  if ((!all && !overdue) || !Active(vgpu) || std::exchange(standing.ready, true)) return;
  policy_.Ready(vgpu.id, now, all ? now - standing.since : 0);
}

// It stays stopped. What it has in host memory may go on to the file; the mover knows that already if it moved
// something out of it.
//
// Without a file, who has rested for a while is not kept frozen, but its addresses are made valid and it is thawed
// behind its closed gate: one of its threads may be inside the driver, and wait for what the driver itself submits, of
// which nobody else knows. What that is ends in host memory.
void ResidencyServer::LetRest(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (!residence.stopped || residence.thawed || residence.doing != Doing::kNothing) return;
  const bool could_be_moved = residence.number != 0 && now >= residence.stuck_until && host_.still(process);
  if (file_ > 0) {
    if (!residence.rests && could_be_moved && Swapped(process) > 0) Order(process, Doing::kEvicting, 0, now);
    return;
  }
  if (residence.leaves || residence.push > 0 || Active(process)) {
    residence.rests_since = 0;
    return;
  }
  if (residence.rests_since == 0) residence.rests_since = now;
  if (now - residence.rests_since < kRests) return;
  if (process.page->guard.unsafe != 0) {
    if (could_be_moved) Order(process, Doing::kSettling, 0, now);
    return;
  }
  residence.thawed = true;
  host_.hold(process, MemoryHold::kGate);
}

// While nothing can be moved nobody gains if others stand still.
void ResidencyServer::LetAllRun(VGpu& vgpu, Nanos now) {
  for (Process* process : vgpu.processes) {
    if (process->residence.stopped && process->page->guard.unsafe == 0) Run(*process, now);
  }
}

void ResidencyServer::Stop(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (Active(process) && residence.waits_since == 0) residence.waits_since = now;
  if (residence.stopped && !residence.thawed) return;
  residence.stopped = true;
  residence.thawed = false;
  residence.rests_since = 0;
  Trace(process, "stops");
  host_.hold(process, MemoryHold::kFrozen);
}

void ResidencyServer::Run(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (residence.waits_since != 0) residence.waited += now - std::exchange(residence.waits_since, 0);
  residence.stopped = residence.thawed = false;
  Trace(process, "runs");
  if (std::exchange(residence.exchanging, false))
    residence.exchange.Done(residence.moving - residence.moving_before, now);
  residence.colder = 0;
  host_.hold(process, MemoryHold::kNone);
}

}  // namespace tessera::server
