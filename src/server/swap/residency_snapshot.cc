#include "server/swap/residency_snapshot.h"

#include <algorithm>
#include <cerrno>

#include "server/swap/chunks.h"

namespace tessera::server {
namespace {

// The order of the reads matters where memory is on its way: moved_in, swapped, moved_out (wire/page.h). So nothing
// counts twice.
void ReadMoves(const Residence& residence, sched::ProcessResidence& state) {
  const wire::Page& page = **residence.page;
  state.moving = residence.moves.Doing();
  state.ordered = residence.moves.Ordered();
  state.coming_holes = residence.moves.OrderedHoles();
  state.done = state.moving == sched::Moving::kIn ? residence.moves.Unreported(page) : 0;
  state.stranded = residence.Stranded();
  state.swapped = residence.Swapped();
  state.stranded = std::min(state.stranded, state.swapped);  // some was freed meanwhile
  state.swapped -= state.stranded;
  // A chunk that is out has one unit in use at least.
  state.holes_out =
      std::min(page.holes_out.load(std::memory_order_relaxed), (wire::kUnitsPerChunk - 1) * state.swapped);
  if (state.moving == sched::Moving::kOut) state.done = residence.moves.Unreported(page);
  state.hot_out = std::min(page.hot_out.load(std::memory_order_relaxed), state.swapped);
  state.recalled = std::min(page.recalled.load(std::memory_order_relaxed), state.swapped);
  state.squeezed = std::min(page.squeezed.load(std::memory_order_relaxed), state.swapped - state.recalled);
}

sched::ProcessResidence StateOf(const Process& process, const ResidencyHost& host, Nanos now) {
  const Residence& residence = process.residence;
  const wire::Page& page = *process.page;
  sched::ProcessResidence state{.id = residence.id};
  const std::uint64_t outside = host.outside(process);
  state.room = residence.room + outside;
  state.credit = residence.Credit();
  state.pinned = residence.Pinned() + outside;
  if (state.pinned + state.credit > state.room) state.pinned = state.room - state.credit;  // credit came meanwhile
  state.empty = page.empty.load(std::memory_order_relaxed);
  state.holed = std::min(page.holed.load(std::memory_order_relaxed), residence.Movable());
  state.holes = std::min(page.holes.load(std::memory_order_relaxed), state.holed);
  ReadMoves(residence, state);
  if (residence.comes_at_once && !process.suspension.Away()) {
    state.recalled = state.swapped;
    state.squeezed = 0;
  }
  state.allocated = process.memory.Current();
  state.blank = process.memory.Blank();
  state.wanted = residence.wanted;
  state.wanted_at = residence.wanted_at;
  state.pins = residence.pins;
  state.granted_at = residence.granted_at;
  state.push = residence.push;
  state.away = process.suspension.Away();
  state.parked = residence.parked;
  state.in_own_file = residence.own_file.in && !residence.own_file.ordered;
  state.has_line = residence.line.number != 0;
  state.lost_line = residence.line.Lost();
  state.moved_for = residence.moves.SumAt(now).time;
  state.stuck_until = residence.stuck_until;
  state.no_memory_to_settle = residence.settle_error == ENOMEM;
  state.may_be_in_file = residence.may_be_in_file;
  state.no_host_memory = residence.no_host_memory || residence.comes_at_once;
  state.unsafe = page.guard.unsafe != 0;
  // Peers wait for memory that can neither come to be valid where it is, nor comes by itself.
  const PeerWork peers = host.peers(process);
  state.peers = peers.any;
  state.works = HasWork(process) || ((state.no_memory_to_settle || state.CannotSettle()) && peers.work);
  state.stopped = residence.stopped;
  state.thawed = residence.thawed;
  state.keeps_peers = residence.keeps_peers && state.peers;
  state.alone = residence.alone;
  state.still = residence.stopped && host.still(process);
  return state;
}

}  // namespace

bool HasWork(const Process& process) {
  return !process.FrozenByOperator() &&
         (process.gate.state != GateRecord::State::kParked || process.page->calls.load() > 0);
}

void TakeSnapshot(const std::vector<VGpu*>& vgpus, const ResidencyHost& host, const MoverLink& link, std::uint64_t file,
                  Nanos now, sched::ResidencyState& state) {
  state.capacity = host.capacity();
  state.chunk = wire::kChunkBytes;
  state.unit = wire::kUnitBytes;
  state.file = file;
  state.pool = link.Pool();
  state.mover_ready = link.Ready();
  state.mover_hopeless = link.Hopeless();
  state.vgpus.resize(vgpus.size());
  for (std::size_t i = 0; i < vgpus.size(); ++i) {
    const VGpu& vgpu = *vgpus[i];
    const MemoryTerms& terms = vgpu.spec.memory;
    sched::VGpuResidence& its = state.vgpus[i];
    its.id = vgpu.id;
    its.weight = vgpu.spec.compute.weight;
    its.priority = vgpu.spec.compute.priority;
    its.request = vgpu.removed ? 0 : terms.request;  // the ledger has let go of it
    its.limit = terms.limit;
    its.swap = terms.swap;
    its.gang = vgpu.gang_turn;
    its.processes.clear();
    for (const Process* process : vgpu.processes) its.processes.push_back(StateOf(*process, host, now));
  }
}

void NoteWaits(const std::vector<VGpu*>& vgpus, const sched::ResidencyState& state, Nanos now) {
  for (std::size_t i = 0; i < vgpus.size(); ++i) {
    bool any = false;
    for (std::size_t j = 0; j < vgpus[i]->processes.size(); ++j) {
      Process& process = *vgpus[i]->processes[j];
      Residence& residence = process.residence;
      const bool active = state.vgpus[i].processes[j].Active(now);
      const bool stands = residence.stopped && active;
      const bool waits = residence.wanted > 0 || stands || (process.freeze.by_peers && HasWork(process));
      residence.waited.Note(waits, now);
      any |= waits;
    }
    vgpus[i]->memory_pressure.Note(now, any);
  }
}

}  // namespace tessera::server
