// Faults that tests inject: TESSERA_FAULT="STEP[:N]" kills the process when it passes a named step for the Nth time
// (the first, without N), as nothing else than SIGKILL does at such a moment. The steps, and what holds at each:
//
//   mover.offer.imported   a program's chunks are mapped, their copy out is not begun
//   mover.copy.started     a copy is under way, in either direction
//   mover.copy.done        it ended; nobody was told
//   mover.stored.sent      the program was given the host memory of a copy
//   mover.freed.received   it has given its GPU memory back; the host memory is all there is
//   mover.want.imported    GPU memory for chunks to come is mapped, their copy in is not begun
//   mover.loaded.sent      the program was given the GPU memory of a copy
//   mover.taken.received   it has given its host memory back
//   mover.file.written     a chunk of a program is in the swap file as well; nobody was told
//   mover.filed.sent       the program was told so
//   mover.released.received  it has given its host memory back; the file is all there is
//   mover.file.read        a chunk is in host memory again; nobody was told
//   mover.read.sent        the program was given that
//   mover.held.received    it holds it; the file's place is free
//   mover.pool.grown       a slot was made; nobody was told
//   mover.slot.told        the daemon was given its descriptor
//   mover.slot.gone        the daemon was told that a slot is to be freed
//   mover.slot.restored    a slot of an earlier mover is in the pool again
//   mover.adopt.claimed    chunks of a program are found in the pool; it was not told
//   mover.adopted.sent     it was told
//   mover.lent.sent        the daemon was told that the slots of a program are for it only; another mover may get them
//   mover.slot.reached     a slot that may come from another mover is mapped
//   mover.slot.lent        it has come; nobody was told
//   mover.shown.told       GPU memory that a program shows is a slot, and the daemon was given its descriptor
//   mover.left.told        likewise of memory that a program is to leave in place
//   mover.relocated        memory in place has been copied to a slot of host memory, which has its key
//   mover.save.written     a chunk of a parked program is in its own file as well, which is not finished
//   mover.save.finished    that file is finished; the slots still have all
//   mover.save.left        the file is all there is; nobody was told
//   mover.unsave.read      a chunk of it is in memory again, which is no slot's with a key
//   mover.unsave.cleared   all of it is in slots, and the file is empty; nobody was told
//   holder.slot.given      the swap holder gave a slot to the next daemon
//   soft.locked            a program on soft GPUs is locked for a checkpoint; nobody was told (here and below)
//   soft.checkpoint.taken  nothing of it is on devices any more, its state is still "locked"
//   soft.checkpointed      its state is "checkpointed"
//   soft.restore.put       it is on devices again, its state is still "checkpointed"
//   soft.restored          its state is "locked" again
//   daemon.slot.received   the next daemon received a slot from it
//   suspension.drained     a program is to leave its GPUs, and its work has ended; the daemon, here and below
//   suspension.left        what can be moved is in host memory, and the program holds nothing of it
//   suspension.locked      the driver has locked it
//   suspension.saved       and has saved it; nobody was told
//   suspension.roomy       it is to return, and has room
//   suspension.restored    the driver has brought it back, and it is locked
//   suspension.unlocked    its calls go on; its gates are closed
//   migration.given        the movers of the new GPUs have what its programs have in host memory, and the old ones too
//   migration.moved        and the vGPUs are there
//   migration.recorded     and the state files say so; the old movers have it still
//
// Uses the C library only, because the shim may carry it into every program. Any thread.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace tessera {

namespace fault {
inline constexpr char kNotRead[] = "";
inline constinit std::atomic<const char*> wanted = kNotRead;  // the variable as it was when it was first asked for
inline constinit std::atomic<long> passages = 0;              // of the step that it names
}  // namespace fault

inline void PassFault(const char* step) {
  const char* wanted = fault::wanted.load(std::memory_order_relaxed);
  if (wanted == fault::kNotRead) {
    wanted = getenv("TESSERA_FAULT");
    fault::wanted.store(wanted, std::memory_order_relaxed);
  }
  if (wanted == nullptr) return;
  const size_t length = strlen(step);
  if (strncmp(wanted, step, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':')) return;
  const long number = wanted[length] == ':' ? atol(wanted + length + 1) : 1;
  if (fault::passages.fetch_add(1) + 1 == number) raise(SIGKILL);
}

}  // namespace tessera
