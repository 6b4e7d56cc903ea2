#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "mover/pool/gpu.h"
#include "mover/pool/key_table.h"

namespace tessera::mover {

// Programs that may get each other's used slots: of one user, in one PID namespace. The daemon numbers them.
using Domain = std::uint64_t;
// A piece of the pool, of one chunk: an index into the pool's table.
using Slot = Place;

// The slots of the swap pool: which have memory, and which of them a program may take. A slot whose descriptor was
// given to a program is for programs of that domain for ever, since a program can keep what it once had; for others it
// has to be made anew. Makes and frees no memory itself (PoolGrowth says what should be done).
//
// The table is the daemon's, which also keeps the slots' descriptors: the next mover goes on with both. For the loop's
// thread.
class Pool {
 public:
  struct Figures {
    std::uint64_t total = 0;              // slots with memory
    std::uint64_t used = 0;               // of them, those that programs have something in
    std::uint64_t free = 0;               // of them, those that may be taken, by programs of one domain or another
    std::uint64_t transits_given_up = 0;  // slots of this GPU's memory, which count in none of these
  };
  // Memory that is the pool's no more, and the number under which the daemon keeps it.
  struct Removed {
    HostMemory memory;
    std::uint64_t number = 0;
  };
  // The free slots by domain; without one, those that no program was given yet.
  using Free = std::map<std::optional<Domain>, std::vector<Slot>>;

  // There are as many slots as `table` has entries, at most. It outlives the pool.
  explicit Pool(KeyTable& table);

  // A new slot, which no program gets before it is admitted. It counts from then on. One of this GPU's memory, where
  // something of a program's lies already, is that program's: it counts in none of the figures, and leaves the pool
  // when it comes free.
  Slot Add(HostMemory memory);
  // The one whose memory has this number; false: there is none that waits to be admitted.
  bool Admit(std::uint64_t number);
  // The slot of an earlier mover whose memory has this number; none if the table does not know it.
  std::optional<Slot> Earlier(std::uint64_t number) const;
  // Adds that one. Memory of a program in it is in use, and can be claimed.
  void Restore(Slot slot, HostMemory memory);

  // How many Add has a place for.
  std::uint64_t Places() const { return unused_.size(); }

  // A free slot for a program of `domain`, if there is one.
  std::optional<Slot> Take(Domain domain);
  std::uint64_t FreeFor(Domain domain) const { return FreeOf(domain) + FreeOf(std::nullopt); }
  const Free& FreeSlots() const { return free_; }
  // The content of the slot is about to be given to the owner, a program of `domain`, with the descriptor and a new
  // key.
  void Give(Slot slot, Domain domain, pid_t owner);
  // The same of a slot whose content is parked, under a key that the program knows already.
  void GiveUnder(std::uint64_t key, Slot slot, Domain domain, pid_t owner);
  // The slot's program holds nothing of it from now on, or holds it again. To be said before the program hears that it
  // is to give it up, and after it has said that it has it again.
  void Park(Slot slot, bool parked) { table_.Park(slot, parked); }
  void GiveBack(Slot slot);  // one that is shared is removed then
  // Like GiveBack, of a slot that a program may still write to: no other gets it any more, and it is to be removed.
  void GiveUp(Slot slot);

  // Somebody reads the slot's memory from now on, or no longer: until then it is neither given to others nor removed,
  // whatever is said of it. One reader at a time.
  void BeginRead(Slot slot) { read_.emplace(slot, false); }
  void EndRead(Slot slot);

  // A slot that was given up, or made place, if there is one (or only of GPUs' memory, or this one's); or a free slot
  // of that domain (or of none), of which there is one.
  enum class GivenUp { kAny, kOnGpus, kHere };
  std::optional<Removed> RemoveGivenUp(GivenUp which = GivenUp::kAny);
  Removed RemoveFree(std::optional<Domain> domain);

  // The slot's key, and the number of its memory.
  const KeyTable::Entry& EntryOf(Slot slot) const { return std::as_const(table_)[slot]; }
  HostMemory& MemoryOf(Slot slot) { return slots_.at(slot); }
  Figures Count() const;

 private:
  friend class PoolLending;

  std::optional<Domain> DomainOf(Slot slot) const;
  std::uint64_t FreeOf(std::optional<Domain> domain) const;
  void AddFree(Slot slot);
  Removed Remove(Slot slot);
  bool TakeBack(Slot slot);  // one that was given up and nobody reads; false: it is none
  bool IsHere(Slot slot) const;
  void CountGivenUp(Slot slot, std::uint64_t sign);
  void Insert(Slot slot, HostMemory memory);

  KeyTable& table_;
  std::vector<Slot> unused_;          // without memory
  std::map<Slot, HostMemory> added_;  // and not admitted
  std::map<Slot, HostMemory> slots_;
  Free free_;
  std::vector<Slot> given_up_;
  std::uint64_t transits_ = 0;           // of slots_: memory of GPUs
  std::uint64_t transits_given_up_ = 0;  // of given_up_: likewise,
  std::uint64_t here_given_up_ = 0;      // and of them, of this one
  std::map<Slot, bool> read_;            // those that somebody reads; true: was given back meanwhile
  std::vector<Removed> vacated_;         // of free slots that made place for others
};

}  // namespace tessera::mover
