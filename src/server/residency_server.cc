#include "server/residency_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/size.h"
#include "server/log.h"
#include "wire/line.h"

namespace tessera::server {
namespace {

using Doing = Residence::Doing;

constexpr std::uint64_t kChunk = wire::kChunkBytes;
// What is ordered at least where memory comes in while other memory goes out: so much that the mover always has some
// batches under way, and so little that both directions are busy most of the time.
std::uint64_t StepOf(std::uint64_t capacity) {
  return std::clamp<std::uint64_t>(capacity / 32 / kChunk, 2, 32) * kChunk;
}
// Room that is lent in advance where there is plenty, so that not each allocation costs a question.
constexpr std::uint64_t kMostCredit = kGiB;
// A wish that is not repeated for so long is nobody's any more: programs repeat them.
constexpr Nanos kWishLasts = 2 * kSecond;
constexpr Nanos kStuck = kSecond;
// So long nobody waits for room that only host memory could make.
constexpr Nanos kPoolFull = 3 * kSecond;
// What a program waited for is not taken back before it could take it.
constexpr Nanos kTakesIt = kSecond;
// How often it is looked whether a program has come to a stand, where nothing tells.
constexpr Nanos kLookAgain = kMillisecond;
constexpr Nanos kRestartMover = kSecond;
std::uint64_t Less(std::uint64_t from, std::uint64_t bytes) { return from > bytes ? from - bytes : 0; }
// From this part of the GPU's memory on a mover is kept ready, and its pool filled: neither can be had in an instant.
std::uint64_t Half(std::uint64_t capacity) { return capacity / 2; }

std::uint64_t RoundUp(std::uint64_t bytes) { return (bytes + kChunk - 1) / kChunk * kChunk; }
std::uint64_t RoundDown(std::uint64_t bytes) { return bytes / kChunk * kChunk; }

// Who may see what another one left in the host memory of the pool: processes that could read each other's memory
// anyway, because they are of one user in one PID namespace.
std::uint64_t DomainOf(const Process& process) {
  struct stat status{};
  const std::string path = fmt::format("/proc/{}/ns/pid", process.pid);
  if (stat(path.c_str(), &status) != 0) return (std::uint64_t{1} << 63) | static_cast<std::uint64_t>(process.pid);
  return (std::uint64_t{process.uid} << 32) ^ status.st_ino;
}

}  // namespace

ResidencyServer::ResidencyServer(EventLoop& loop, std::uint32_t gpu, const sched::ResidencyConfig& config,
                                 std::uint64_t swap_max, const std::vector<VGpu*>& vgpus, Host host)
    : loop_(loop),
      gpu_(gpu),
      swap_max_(RoundDown(swap_max)),
      vgpus_(vgpus),
      host_(std::move(host)),
      policy_(config),
      timer_(loop_, [this] { Work(); }) {}

template <typename Visit>
void ResidencyServer::ForEach(Visit visit) const {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) visit(*process);
  }
}

// ---- figures ----

std::uint64_t ResidencyServer::Credit(const Process& process) {
  const std::int64_t credit = process.page->room_credit.load(std::memory_order_relaxed);
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(credit, 0)), process.residence.room);
}

std::uint64_t ResidencyServer::Pinned(const Process& process) {
  const std::uint64_t taken = process.residence.room - Credit(process);
  return std::min(process.page->pinned.load(std::memory_order_relaxed), taken);
}

std::uint64_t ResidencyServer::Movable(const Process& process) {
  return process.residence.room - Credit(process) - Pinned(process);
}

std::uint64_t ResidencyServer::Swapped(const Process& process) {
  return process.residence.number == 0 ? 0 : process.page->swapped.load(std::memory_order_acquire);
}

// Room for what is on its way to the GPU was taken when that was ordered.
std::uint64_t ResidencyServer::Taken(const Process& process) {
  const Residence& residence = process.residence;
  return Less(residence.room - Credit(process), residence.doing == Doing::kLoading ? residence.ordered : 0);
}

std::uint64_t ResidencyServer::Evicting(const Process& process) {
  const Residence& residence = process.residence;
  return residence.push + (residence.doing == Doing::kEvicting ? residence.ordered : 0);
}

Moves ResidencyServer::MovesOf(const Process& process, Nanos now) {
  const Residence& residence = process.residence;
  const Nanos under_way = residence.doing == Doing::kNothing ? 0 : now - residence.ordered_at;
  return {residence.moved_out, residence.moved_in, residence.moving + under_way};
}

Moves ResidencyServer::MovesOf(const VGpu& vgpu, Nanos now) {
  Moves sum = vgpu.moved_before;
  for (const Process* process : vgpu.processes) {
    const Moves moves = MovesOf(*process, now);
    sum = {sum.out + moves.out, sum.in + moves.in, sum.time + moves.time};
  }
  return sum;
}

Nanos ResidencyServer::Waited(const Process& process, Nanos now) {
  const Residence& residence = process.residence;
  return residence.waited + (residence.waits_since == 0 ? 0 : now - residence.waits_since);
}

// Credit that it waited for and has not taken yet.
std::uint64_t ResidencyServer::Granted(const Process& process) {
  const bool stands = MonotonicNow() - process.residence.granted_at < kTakesIt;
  return stands ? Credit(process) : 0;
}

// One that an operator froze has nothing to do until it is thawed, whatever waits: its memory need not be on the GPU.
bool ResidencyServer::Active(const Process& process) {
  const bool frozen = process.frozen || process.vgpu->spec.frozen;
  return process.residence.wanted > 0 || Granted(process) > 0 ||
         (process.gate.state != Gate::State::kParked && !frozen);
}

bool ResidencyServer::Active(const VGpu& vgpu) {
  return std::ranges::any_of(vgpu.processes, [](const Process* process) { return Active(*process); });
}

std::uint64_t ResidencyServer::Resident(const VGpu& vgpu) {
  std::uint64_t sum = 0;
  for (const Process* process : vgpu.processes) sum += Movable(*process);
  return sum;
}

std::uint64_t ResidencyServer::Used() const {
  std::uint64_t used = 0;
  ForEach([&](const Process& process) { used += process.residence.room - Credit(process); });
  return used;
}

std::uint64_t ResidencyServer::Free() const {
  std::uint64_t used = 0;
  for (const VGpu* vgpu : vgpus_) {
    std::uint64_t room = 0;
    for (const Process* process : vgpu->processes) room += process->residence.room;
    const auto promise = host_.promise(*vgpu);
    used += promise ? std::max(*promise, room) : room;
  }
  return Less(host_.capacity(), used);
}

// Whether anything is not as everybody would like it.
bool ResidencyServer::Pressed() const {
  bool pressed = false;
  ForEach([&](const Process& process) {
    const Residence& residence = process.residence;
    pressed |= residence.wanted > 0 || Granted(process) > 0 || residence.stopped || residence.push > 0 ||
               residence.doing != Doing::kNothing || Swapped(process) > 0;
  });
  return pressed;
}

ResidencyServer::Figures ResidencyServer::FiguresNow() const {
  return {.swap_max = swap_max_,
          .pool = pool_,
          .pool_used = pool_used_,
          .capacity = host_.capacity(),
          .mover = MoverPid(),
          .mover_bytes = MoverBytes(),
          .decision = why_no_mover_.empty() ? policy_.Why() : why_no_mover_,
          .turns = policy_.CurrentMode() == sched::Residency::Mode::kTurns,
          .turn = policy_.TurnLength()};
}

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

void ResidencyServer::Leave(Process& process) {
  if (process.residence.number != 0 && mover_ready_)
    mover_->Send({.type = wire::MoverType::kGone, .program = process.residence.number});
  const Moves moves = MovesOf(process, MonotonicNow());
  Moves& before = process.vgpu->moved_before;
  before = {before.out + moves.out, before.in + moves.in, before.time + moves.time};
  process.residence = {};
  Work();
}

UniqueFd ResidencyServer::MakeLine(Process& process) {
  Residence& residence = process.residence;
  if (residence.number != 0 && mover_ready_)
    mover_->Send({.type = wire::MoverType::kGone, .program = residence.number});
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  residence.number = next_number_++;
  residence.line.Reset(ends[1]);
  residence.doing = Doing::kNothing;
  residence.ordered = residence.out = residence.in = 0;
  residence.stuck_until = 0;
  if (mover_ready_) Introduce(process);
  return UniqueFd(ends[0]);
}

void ResidencyServer::Introduce(Process& process) {
  Residence& residence = process.residence;
  if (!residence.line) return;
  mover_->Send({.type = wire::MoverType::kProgram, .program = residence.number, .other = DomainOf(process)},
               residence.line.Get());
  residence.line.Reset();
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
  std::uint64_t pinned = 0;
  for (const Process* each : process.vgpu->processes) pinned += Pinned(*each);
  if (bytes > Less(promise.value_or(host_.capacity()), pinned)) return RoomAnswer::kNever;
  residence.wanted = bytes;
  residence.wanted_at = now;
  std::uint64_t taken = 0;  // by the vGPU
  for (const Process* each : process.vgpu->processes) taken += each->residence.room;
  const std::uint64_t free = promise ? Less(*promise, taken) : Free();
  if (promise && bytes > free && TakenInAdvance(*process.vgpu) + MaySwap(*process.vgpu) < bytes - free) {
    residence.wanted = 0;
    return RoomAnswer::kNever;
  }
  if (!residence.stopped && !was_pressed_ && bytes <= free) {
    residence.wanted = 0;
    AddRoom(process, bytes);
    // A part of what is plenty, in advance.
    Grant(process, RoundDown(std::min(kMostCredit, (free - bytes) / 16)));
    if (!mover_ && Used() > Half(host_.capacity())) Work();
    return RoomAnswer::kGranted;
  }
  if (now < pool_full_until_ && bytes > free) {
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
  if (std::exchange(mover_gone_, false)) mover_.reset();
  const bool pressed = Pressed();
  const bool begins = pressed && !was_pressed_;
  was_pressed_ = pressed;
  if (!pressed) {
    if (Used() > Half(host_.capacity())) EnsureMover(now);
    GrowPool();
    timer_.Arm(kNever);
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
  Nanos next = std::min(policy_.NextDeadline(), now + 100 * kMillisecond);
  ForEach([&](const Process& process) {
    if (process.residence.stopped && !host_.still(process)) next = now + kLookAgain;
  });
  timer_.Arm(next);
}

void ResidencyServer::Inform(Nanos now) {
  std::uint64_t taken = 0;  // by promises, and by what cannot be moved
  for (const VGpu* vgpu : vgpus_) {
    std::uint64_t pinned = 0, demand = 0;
    for (const Process* process : vgpu->processes) {
      pinned += Pinned(*process);
      // What is on its way has its room already, and is still in host memory.
      const Residence& residence = process->residence;
      const std::uint64_t coming = residence.doing == Doing::kLoading ? residence.ordered : 0;
      demand += Movable(*process) + Less(Swapped(*process), coming) + residence.wanted + Granted(*process);
    }
    const auto promise = host_.promise(*vgpu);
    taken += promise ? std::max(*promise, pinned) : pinned;
    if (promise) demand = 0;
    policy_.Demand(vgpu->id, demand, now);
    policy_.Resident(vgpu->id, promise ? 0 : Resident(*vgpu), now);
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
  return {decision.target, decision.runs};
}

void ResidencyServer::NoteDecision(const VGpu& vgpu, Nanos now) {
  Standing& standing = standings_[vgpu.id];
  const Decision decision = DecisionFor(vgpu);
  const Decision before = std::exchange(standing.decision, decision);
  // While it is not carried out it is the same move, however its target changes on the way.
  const bool begins = decision.runs && (!before.runs || (standing.ready && decision.target > before.target));
  if (begins) standing.since = now;
  if (begins || !decision.runs) standing.ready = false;
}

void ResidencyServer::Serve(VGpu& vgpu, Nanos now) {
  NoteDecision(vgpu, now);
  const Decision decision = DecisionFor(vgpu);
  std::uint64_t needed = Resident(vgpu);
  if (decision.runs) {
    for (const Process* process : vgpu.processes) needed += process->residence.wanted;
  } else {
    for (Process* process : vgpu.processes) Stop(*process, now);
  }
  for (Process* process : vgpu.processes) process->residence.leaves = false;
  Evict(vgpu, Less(needed, decision.target), now);
  if (!decision.runs) return;
  GrantWishes(vgpu, decision.target);
  Load(vgpu, decision.target, now);
  LetRun(vgpu, now);
}

// What more of a vGPU may lie in host memory. Without a word about it: what it may allocate, or has, beyond its limit.
std::uint64_t ResidencyServer::MaySwap(const VGpu& vgpu) const {
  std::uint64_t out = 0;
  for (const Process* process : vgpu.processes) {
    out += Swapped(*process);
    if (process->residence.doing == Doing::kEvicting) out += process->residence.ordered;
  }
  const MemoryTerms& terms = vgpu.spec.memory;
  if (terms.swap) return Less(*terms.swap, out);
  if (!terms.limit) return swap_max_;
  std::uint64_t allocated = 0;
  for (const Process* process : vgpu.processes) allocated += process->memory.Current();
  // Whole chunks go, so that a part of one may be needed.
  return Less(RoundUp(Less(std::max(terms.max.value_or(0), allocated), *terms.limit)), out);
}

void ResidencyServer::Evict(VGpu& vgpu, std::uint64_t excess, Nanos now) {
  std::vector<Process*> victims = vgpu.processes;
  std::ranges::sort(victims, [](const Process* a, const Process* b) {
    return std::tuple(Active(*a), Movable(*b), a->pid) < std::tuple(Active(*b), Movable(*a), b->pid);
  });
  for (const Process* process : victims) {
    if (process->residence.doing == Doing::kEvicting) excess = Less(excess, process->residence.ordered);
  }
  std::uint64_t may_go = MaySwap(vgpu);
  for (Process* process : victims) {
    Residence& residence = process->residence;
    std::uint64_t bytes = std::min({RoundUp(excess), RoundDown(Movable(*process)), RoundDown(may_go)});
    bytes = std::max(bytes, std::min(RoundUp(residence.push), RoundDown(Movable(*process))));
    if (bytes == 0 || residence.doing != Doing::kNothing || now < residence.stuck_until || residence.number == 0)
      continue;
    if (!mover_ready_) return;
    residence.leaves = true;
    Stop(*process, now);
    if (!host_.still(*process)) continue;
    if (Order(*process, Doing::kEvicting, bytes, now)) {
      residence.settled = false;
      residence.push = 0;
      excess = Less(excess, bytes);
      may_go = Less(may_go, bytes);
    }
  }
}

void ResidencyServer::Load(VGpu& vgpu, std::uint64_t target, Nanos now) {
  if (!Active(vgpu)) return;  // it comes when it is needed
  for (Process* process : vgpu.processes) {
    Residence& residence = process->residence;
    const bool loads = residence.doing == Doing::kLoading;
    const std::uint64_t out = Less(Swapped(*process), loads ? residence.ordered : 0);
    if (out == 0 || now < residence.stuck_until || residence.push > 0 || (residence.doing != Doing::kNothing && !loads))
      continue;
    std::uint64_t bytes = std::min(out, RoundDown(Less(target, Resident(vgpu))));
    if (!host_.promise(vgpu)) bytes = std::min(bytes, RoundDown(Free()));
    if (bytes == 0 ||
        (bytes < StepOf(host_.capacity()) && bytes < out && bytes < RoundDown(Less(target, Resident(vgpu)))))
      continue;
    Stop(*process, now);
    if (!host_.still(*process)) continue;
    AddRoom(*process, bytes);
    if (!Order(*process, Doing::kLoading, bytes, now)) residence.room -= bytes;
  }
}

// Lets those go on whose memory is where it is to be.
void ResidencyServer::LetRun(VGpu& vgpu, Nanos now) {
  const std::uint64_t target = DecisionFor(vgpu).target;
  bool all = true;
  for (Process* process : vgpu.processes) {
    Residence& residence = process->residence;
    if (residence.wanted > 0) all = false;  // what it waits for is still being made: its turn has not begun
    if (!residence.stopped) continue;
    // Without a line nobody can bring its memory back, or make its addresses valid.
    if (residence.number == 0 && process->page->swapped.load(std::memory_order_acquire) > 0) {
      all = false;
      continue;
    }
    const std::uint64_t out = Swapped(*process);
    const bool more = out > 0 && now >= residence.stuck_until && Less(target, Resident(vgpu)) >= kChunk;
    if (residence.doing != Doing::kNothing || residence.leaves || residence.push > 0 || more) {
      all &= !Active(*process);
      continue;
    }
    if (out > 0 && !Active(*process)) continue;  // nobody needs it now
    if (out > 0 && !residence.settled) {
      if (host_.still(*process)) Order(*process, Doing::kSettling, 0, now);
      all = false;
      continue;
    }
    Run(*process, now);
  }
  Standing& standing = standings_[vgpu.id];
  if (!all || !Active(vgpu) || std::exchange(standing.ready, true)) return;
  policy_.Ready(vgpu.id, now, now - standing.since);
}

void ResidencyServer::Stop(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (Active(process) && residence.waits_since == 0) residence.waits_since = now;
  if (std::exchange(residence.stopped, true)) return;
  host_.hold(process, true);
}

void ResidencyServer::Run(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (residence.waits_since != 0) residence.waited += now - std::exchange(residence.waits_since, 0);
  residence.stopped = false;
  host_.hold(process, false);
}

bool ResidencyServer::Order(Process& process, Doing doing, std::uint64_t bytes, Nanos now) {
  using enum wire::MoverType;
  Residence& residence = process.residence;
  if (!mover_ready_) return false;
  const wire::MoverType type = doing == Doing::kEvicting ? kEvict : doing == Doing::kLoading ? kLoad : kSettle;
  if (!mover_->Send({.type = type, .program = residence.number, .bytes = bytes})) return false;
  if (residence.doing == Doing::kNothing) residence.ordered_at = now;
  residence.doing = doing;
  residence.ordered += bytes;
  return true;
}

Result<void> ResidencyServer::Push(Process& process, std::uint64_t bytes) {
  if (process.residence.number == 0)
    return Fail(ENOSYS, fmt::format("the memory of process {} cannot be moved", process.pid),
                "only memory of programs with Tessera's libcuda can");
  if (!mover_ready_ && !EnsureMover(MonotonicNow()) && !mover_)
    return Fail(EAGAIN, "there is no mover: " + why_no_mover_, "see the daemon's log");
  process.residence.push = bytes;
  process.residence.evict_error = 0;
  process.residence.stuck_until = 0;
  Work();
  return {};
}

// ---- the mover ----

bool ResidencyServer::EnsureMover(Nanos now) {
  if (mover_ || swap_max_ == 0) return mover_ready_;
  if (now < next_start_) return false;
  next_start_ = now + kRestartMover;
  auto started = host_.start_mover([this](const wire::MoverMessage* message) { OnMover(message); });
  if (!started) {
    why_no_mover_ = started.error().Text();
    log::Error("GPU {}: memory cannot be moved: {}", gpu_, why_no_mover_);
    return false;
  }
  mover_ = std::move(*started);
  return false;
}

// As much as may have to go out: what is allocated beyond what fits, early.
void ResidencyServer::GrowPool() {
  if (!mover_ready_) return;
  std::uint64_t demand = 0;
  std::uint64_t pushed = 0;  // and what is out already
  ForEach([&](const Process& process) {
    demand += Movable(process) + Swapped(process) + process.residence.wanted;
    pushed += Swapped(process) + RoundUp(Evicting(process));
  });
  const std::uint64_t wanted = std::min(swap_max_, std::max(RoundUp(Less(demand, Half(host_.capacity()))), pushed));
  if (wanted <= pool_wanted_) return;
  pool_wanted_ = wanted;
  mover_->Send({.type = wire::MoverType::kPool, .bytes = wanted, .other = swap_max_});
}

Process* ResidencyServer::Find(std::uint64_t number) const {
  Process* found = nullptr;
  ForEach([&](Process& process) {
    if (process.residence.number == number) found = &process;
  });
  return number == 0 ? nullptr : found;
}

void ResidencyServer::OnMover(const wire::MoverMessage* message) {
  using enum wire::MoverType;
  const Nanos now = MonotonicNow();
  if (!message || message->type == kFailed) {
    why_no_mover_ = message                 ? std::string(message->text, strnlen(message->text, sizeof message->text))
                    : why_no_mover_.empty() ? "the mover ended"
                                            : why_no_mover_;
    if (message) return;
    log::Error("GPU {}: {}; another one is started", gpu_, why_no_mover_);
    mover_ready_ = false;
    mover_gone_ = true;
    mover_bytes_ = pool_ = pool_used_ = pool_wanted_ = 0;
    ForEach([](Process& process) {
      Residence& residence = process.residence;
      if (residence.doing == Doing::kEvicting) residence.evict_error = ECHILD;
      // What was on its way stayed where it was; the room for it was not used.
      if (residence.doing == Doing::kLoading) residence.room = Less(residence.room, residence.ordered);
      residence.doing = Doing::kNothing;
      residence.ordered = 0;
      if (!residence.line)
        residence.number = 0;  // until it has a new line; one that no mover has seen yet is for the next
    });
    return Work();
  }
  if (message->type == kReady) {
    mover_ready_ = true;
    mover_bytes_ = message->bytes;
    why_no_mover_.clear();
    ForEach([&](Process& process) { Introduce(process); });
    log::Info("GPU {}: memory can be moved; the mover takes {} of the GPU", gpu_, FormatSize(mover_bytes_));
    return Work();
  }
  if (message->type == kPoolIs) {
    pool_ = message->bytes;
    pool_used_ = message->other;
    return;
  }
  Process* process = Find(message->program);
  if (!process) return;
  Residence& residence = process->residence;
  switch (message->type) {
    case kMoved: {
      const std::uint64_t out = Less(message->bytes, residence.out), in = Less(message->other, residence.in);
      residence.out += out;
      residence.in += in;
      residence.moved_out += out;
      residence.moved_in += in;
      residence.room = Less(residence.room, out);  // what came in has its room since it was ordered
      residence.ordered = Less(residence.ordered, out + in);
      break;
    }
    case kEvicted:
    case wire::MoverType::kLoaded:
    case kSettled:
      Done(*process, *message, now);
      break;
    default:
      return;
  }
  Work();
}

void ResidencyServer::Done(Process& process, const wire::MoverMessage& message, Nanos now) {
  Residence& residence = process.residence;
  const bool settling = message.type == wire::MoverType::kSettled;
  if (message.type == wire::MoverType::kLoaded) residence.room = Less(residence.room, message.bytes);
  if (settling) {
    residence.settled = message.error == 0;
    if (message.error != 0)
      log::Error("process {}: its memory is not where it should be (error {}); it stays stopped", process.pid,
                 message.error);
  }
  residence.ordered = Less(residence.ordered, message.bytes);
  if (residence.ordered > 0) return;  // more was ordered meanwhile
  if (residence.doing == Doing::kEvicting) residence.evict_error = message.error == ENODATA ? 0 : message.error;
  residence.doing = Doing::kNothing;
  residence.moving += now - residence.ordered_at;
  if (message.error != 0 && message.error != ENODATA) {
    residence.stuck_until = now + kStuck;
    if (message.type == wire::MoverType::kEvicted && message.error == ENOMEM) pool_full_until_ = now + kPoolFull;
    log::Warn("process {}: {} of its memory could not be moved: {}", process.pid, FormatSize(message.bytes),
              std::string(strerror(message.error)));
  } else if (message.error == ENODATA && message.bytes > 0) {
    residence.stuck_until = now + kStuck;
  }
}

}  // namespace tessera::server
