#include "server/swap/residency_server.h"

#include <algorithm>
#include <utility>

#include "base/size.h"
#include "server/model/chunks.h"
#include "server/record/log.h"
#include "server/swap/residency_trace.h"

namespace tessera::server {
namespace {

using Doing = Residence::Doing;

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

}  // namespace tessera::server
