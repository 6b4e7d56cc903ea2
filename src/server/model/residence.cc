#include "server/model/residence.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "sched/residency/bytes.h"

namespace tessera::server {

using sched::Less;
namespace {

std::atomic<sched::ProcessId> last_id = 0;

}  // namespace

Residence::Residence(SharedPage& page) : id(++last_id), page(&page) {}

std::uint64_t Residence::Credit() const {
  const std::int64_t credit = (*page)->room_credit.load(std::memory_order_relaxed);
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(credit, 0)), room);
}

std::uint64_t Residence::Pinned() const {
  return std::min((*page)->pinned.load(std::memory_order_relaxed), room - Credit());
}

// The program may change its credit meanwhile: it is read once.
std::uint64_t Residence::Movable() const {
  const std::uint64_t taken = room - Credit();
  return Less(taken, (*page)->pinned.load(std::memory_order_relaxed));
}

// Room for memory that is on its way to the GPU was taken when that was ordered.
std::uint64_t Residence::Taken() const {
  return Less(room - Credit(), moves.Doing() == sched::Moving::kIn ? moves.Ordered() : 0);
}

std::uint64_t Residence::Swapped() const { return moves.Swapped(**page); }

// Read before what is out in all, which falls first when such memory is freed.
std::uint64_t Residence::Stranded() const {
  const std::uint64_t stranded = (*page)->stranded.load(std::memory_order_acquire);
  return std::min(stranded, Swapped());
}

std::uint64_t Residence::HotOut() const {
  return std::min((*page)->hot_out.load(std::memory_order_relaxed), Swapped());
}

sched::HostUse Residence::Use(bool runs) const {
  const std::uint64_t out = Swapped();
  const std::uint64_t used_out = std::min((*page)->used_out.load(std::memory_order_relaxed), out);
  return {.runs = runs,
          .out = out,
          .used = std::max((*page)->used.load(std::memory_order_relaxed), used_out),
          .used_out = used_out};
}

std::uint64_t Residence::Evicting() const {
  return push + (moves.Doing() == sched::Moving::kOut ? moves.Ordered() : 0);
}

void Residence::Abandon() {
  if (moves.Doing() == sched::Moving::kIn) room = Less(room, moves.Ordered());
  moves.Abandon();
  if (own_file.ordered) own_file.End(false, ECHILD);
  may_be_in_file = false;
}

void Residence::ChangeLine() {
  Abandon();
  const Moves found = moves.FindLost(**page);
  room = Less(room + found.in, found.out);
  stuck_until = 0;
  no_host_memory = false;
}

// Memory that came in has its room since it was ordered.
Moves Residence::NoteMoved(const Moves& of_room, const Moves& copied) {
  const Moves moved = moves.NoteMoved(of_room, copied);
  room = Less(room, moved.out);
  return moved;
}

}  // namespace tessera::server
