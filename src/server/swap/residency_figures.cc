// What ResidencyServer tells of where memory lies.
#include <algorithm>

#include "base/size.h"
#include "server/model/chunks.h"
#include "server/swap/residency_server.h"

namespace tessera::server {

using Doing = Residence::Doing;

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

// What it says, as far as that can be: no more than was brought out of it.
std::uint64_t ResidencyServer::Swapped(const Process& process) {
  const Residence& residence = process.residence;
  const std::uint64_t most = residence.brought + residence.moved_out + residence.lost_out +
                             (residence.doing == Doing::kEvicting ? residence.ordered : 0);
  return std::min(process.page->swapped.load(std::memory_order_acquire), Less(most, residence.moved_in));
}

// Read before Swapped where the order of those matters (wire/page.h), or after it.
std::uint64_t ResidencyServer::Untold(const Process& process) {
  const Residence& residence = process.residence;
  const wire::Page& page = *process.page;
  switch (residence.doing) {
    case Doing::kEvicting:
      return std::min(residence.ordered, Less(page.moved_out.load(std::memory_order_relaxed), residence.moved_out));
    case Doing::kLoading:
      return std::min(residence.ordered, Less(page.moved_in.load(std::memory_order_acquire), residence.moved_in));
    default:
      return 0;
  }
}

std::uint64_t ResidencyServer::Coming(const Process& process) {
  return process.residence.doing == Doing::kLoading ? process.residence.ordered - Untold(process) : 0;
}

std::uint64_t ResidencyServer::Has(const Process& process, std::uint64_t most) {
  const std::uint64_t coming = Coming(process);  // before Swapped
  const std::uint64_t out = std::min(Swapped(process), most);
  const std::uint64_t gone = process.residence.doing == Doing::kEvicting ? Untold(process) : 0;  // and this after it
  return Less(Movable(process), gone) + Less(out, coming);
}

std::uint64_t ResidencyServer::HotOut(const Process& process) {
  return std::min(process.page->hot_out.load(std::memory_order_relaxed), Swapped(process));
}

std::uint64_t ResidencyServer::Recalled(const Process& process) {
  return std::min(process.page->recalled.load(std::memory_order_relaxed), Swapped(process));
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

// One that an operator froze has nothing to do until it is thawed, whatever waits: its memory need not be on the GPU.
bool ResidencyServer::Active(const Process& process) {
  return process.residence.wanted > 0 || Granted(process) > 0 || Recalled(process) > 0 ||
         (!process.FrozenByOperator() &&
          (process.gate.state != GateRecord::State::kParked || process.page->calls.load() > 0));
}

bool ResidencyServer::Active(const VGpu& vgpu) {
  return std::ranges::any_of(vgpu.processes, [](const Process* process) { return Active(*process); });
}

std::uint64_t ResidencyServer::Resident(const VGpu& vgpu) {
  std::uint64_t sum = 0;
  for (const Process* process : vgpu.processes) sum += Movable(*process);
  return sum;
}

std::uint64_t ResidencyServer::Wanted(const VGpu& vgpu) {
  std::uint64_t sum = 0;
  for (const Process* process : vgpu.processes) sum += process->residence.wanted;
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
  // The policy hears of nothing while nothing is pressed, and what one mover died of matters no more then.
  std::string decision = was_pressed_
                             ? policy_.Why()
                             : "all that is in use fits: " + FormatSize(Used()) + " of " + FormatSize(host_.capacity());
  if (!why_no_mover_.empty() && (was_pressed_ || failed_starts_ > 0)) decision = why_no_mover_;
  return {.swap_max = swap_max_,
          .pool = pool_,
          .pool_used = pool_used_,
          .file = file_,
          .file_used = file_used_,
          .file_error = file_error_,
          .capacity = host_.capacity(),
          .mover = MoverPid(),
          .decision = std::move(decision),
          .turns = was_pressed_ && policy_.CurrentMode() == sched::Residency::Mode::kTurns,
          .turn = was_pressed_ ? policy_.TurnLength() : 0,
          .moves_out = moves_out_,
          .moves_in = moves_in_};
}

}  // namespace tessera::server
