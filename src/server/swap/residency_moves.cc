// The side of ResidencyServer that carries decisions out: who stops, what goes and comes, who goes on.
#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "base/size.h"
#include "server/model/chunks.h"
#include "server/record/log.h"
#include "server/swap/residency_server.h"
#include "server/swap/residency_trace.h"

namespace tessera::server {
namespace {

using Doing = Residence::Doing;

constexpr std::uint64_t kChunk = wire::kChunkBytes;
// What is ordered at least where memory comes in while other memory goes out: so much that the mover always has some
// batches under way, and so little that both directions are busy most of the time.
std::uint64_t StepOf(std::uint64_t capacity) {
  return std::clamp<std::uint64_t>(capacity / 64 / kChunk, 2, 4) * kChunk;
}
// Where nothing was moved for so long nothing will be: a program is stopped by somebody else, a disk or the mover
// hangs.
constexpr Nanos kLongestMove = 10 * kSecond;
// Who does nothing for so long may well do so for longer.
constexpr Nanos kRests = kSecond;

}  // namespace

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
  policy_.Ready(vgpu.id, now, all ? now - standing.since : 0, /*typical=*/pool_grew_at_ <= standing.since);
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
