#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/swap/holder/swap_holder_link.h"
#include "server/swap/mover_link.h"
#include "server/swap/swap_slots.h"

namespace tessera::server {

// Slots whose descriptors may wait in the socket to a mover.
inline constexpr std::size_t kMostSlotsOnTheWay = 16;

// The marks that a slot with these marks of the pool of GPU `from` has in the pool of GPU `to` (wire::SwapEntry): of
// its memory only.
std::uint32_t MarksAt(std::uint32_t to, std::uint32_t from, std::uint32_t marks);

// Gives what a program has parked in the swap pool of one GPU to the mover of another GPU. Nothing is copied: the slots
// change pools. Until the second mover has all of them either pool leads to them, whoever is killed; then the first one
// lets go. After that the program gets a line to the second mover, and names there what it has.
//
// First the mover that has them marks them (kLend), so that neither pool ever gives them to another program; then the
// other one takes them (kSlotFor). On the loop's thread.
class SlotHandover {
 public:
  // The pool of a GPU; all of it outlives the handover.
  struct Side {
    MoverLink& link;
    SwapSlots& slots;
    SwapHolderLink& holder;
  };
  using Done = std::function<void(Result<void>)>;

  // `owner`: the program's pid. `but`: numbers of slots that stay, because they have just come to the first pool.
  SlotHandover(const Side& from, const Side& to, pid_t owner, std::set<std::uint64_t> but = {})
      : from_(from), to_(to), owner_(owner), but_(std::move(but)) {}
  // One under way is undone: the first mover has everything still.
  ~SlotHandover();
  SlotHandover(const SlotHandover&) = delete;

  // Begins. `done` is called once, later, and may destroy this object: the second mover has everything, and the first
  // one still has, too, until Commit. After an error the program has all in the first pool, and the handover can be
  // tried again. EAGAIN: one of the movers is not there, or has ended; EBUSY: the program is not parked; ENOSPC: the
  // second pool is full of what programs have; EMFILE: not all slots can be kept. A mover that says nothing is waited
  // for; the caller may destroy this object. An error of Start itself: nothing has begun, `done` is not called.
  Result<void> Start(Done done);
  // The numbers of all slots that go, or have gone. After `done` without an error.
  std::set<std::uint64_t> Numbers() const;
  // After `done` without an error: the program may be looked for at either mover from now on, so the object's end
  // undoes nothing any more.
  void KeepBoth();
  // After `done` without an error: the first mover lets go. Without this, or KeepBoth, the object's end undoes all.
  void Commit();

 private:
  void OnFirst(const wire::MoverMessage* message);
  void OnSecond(const wire::MoverMessage* message);
  void OnLent(const wire::MoverMessage& message);
  void GiveMore();
  Result<void> Give(const wire::SwapEntry& entry);
  bool KeepThere(std::uint64_t number, int memory);
  void Undo();
  void End(Result<void> result);

  const Side from_, to_;
  const pid_t owner_;
  const std::set<std::uint64_t> but_;
  Done done_;              // empty: it has not begun, or has ended
  bool complete_ = false;  // the second mover has everything, and the first one too
  std::uint64_t ear_from_ = 0, ear_to_ = 0;
  std::vector<wire::SwapEntry> slots_;                   // all that go
  std::size_t given_ = 0;                                // of them, in order: the second mover was told of them
  std::map<std::uint64_t, wire::SwapEntry> on_the_way_;  // of these, by number: it has not answered
  std::set<std::uint64_t> kept_;  // numbers of those that the second pool's keeper did not have before
};

// These slots of that pool, which were lent, leave it, as its mover is told.
void LetGo(const SlotHandover::Side& side, const std::set<std::uint64_t>& numbers);

}  // namespace tessera::server
