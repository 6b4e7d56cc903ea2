#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "mover/pool/gpu.h"
#include "mover/pool/key_table.h"

namespace tessera::mover {

using Domain = std::uint64_t;
using Slot = Place;

// How many chunks of host memory the programs of a domain could use now.
using Demand = std::map<Domain, std::uint64_t>;

// The swap pool: which slots there are, and who may use them. A slot whose descriptor was given to a program is for
// programs of that domain for ever, since a program can keep what it once had; it has to be made anew for others.
// Makes and frees no memory itself: Next() says what should be done.
//
// Its table is the daemon's, which also keeps the slots' descriptors: the next mover goes on with both.
class Pool {
 public:
  struct Job {
    enum class Kind { kNothing, kMake, kFree };
    Kind kind = Kind::kNothing;
    HostMemory memory;         // kFree: it is the pool's no more
    std::uint64_t number = 0;  // kFree: under which the daemon keeps it
  };

  // There are as many slots as `table` has entries, at most.
  explicit Pool(KeyTable table);

  // How many slots it should have, and how many at most. Until it is known nothing is made or freed.
  void Aim(std::uint64_t wanted, std::uint64_t most);
  std::uint64_t most() const { return most_; }

  Slot Add(HostMemory memory);
  // The number of its memory, under which the daemon keeps it.
  std::uint64_t NumberOf(Slot slot) const { return table_[slot].memory; }
  // The slot of an earlier mover whose memory has this number; none if nothing is known of it.
  std::optional<Slot> Earlier(std::uint64_t number) const;
  // Adds that one. What a program has in it is in use, and can be claimed.
  void Restore(Slot slot, HostMemory memory);

  // A free slot for a program of `domain`, if there is one.
  std::optional<Slot> Take(Domain domain);
  std::uint64_t FreeFor(Domain domain) const;
  std::uint64_t FreeSlots() const;  // for whomever
  // What there is too little of for `demand`.
  std::uint64_t Missing(const Demand& demand) const;
  // What is in the slot is about to be given to the owner, a program of `domain`, with the descriptor.
  void Give(Slot slot, Domain domain, pid_t owner);
  // By which that program, or another of its domain, can claim it.
  std::uint64_t KeyOf(Slot slot) const { return table_[slot].key; }
  void GiveBack(Slot slot);
  // Like GiveBack, of a slot that somebody may still write to: it is nobody's any more, and freed.
  void GiveUp(Slot slot);

  // Its program does not talk any more, and may claim it before `until`.
  void Leave(Slot slot, Nanos until) { table_.Leave(slot, until); }
  // So may all programs of an earlier mover.
  void Bound(Nanos until) { table_.Bound(until); }
  std::optional<Slot> Claim(std::uint64_t key, Domain domain, pid_t owner) { return table_.Claim(key, owner, domain); }
  // That program has claimed all that it has: gives up what else it left.
  void Abandon(pid_t owner);
  std::uint64_t left() const { return table_.left(); }
  // Takes back what programs that have ended left, and gives up what nobody claimed in time. Whether that was anything.
  bool Sweep(Nanos now);

  const HostMemory& MemoryOf(Slot slot) const { return slots_.at(slot); }
  // Of all slots: numbers and descriptors.
  std::vector<std::pair<std::uint64_t, int>> Memories() const;
  std::uint64_t total() const { return slots_.size(); }
  std::uint64_t used() const;

  // What is to be done next to make the pool as it should be, and to make room for `demand`.
  Job Next(const Demand& demand);
  // No memory can be made until Resume, or until some is freed.
  void Stop() { stopped_ = true; }
  void Resume() { stopped_ = false; }
  bool stopped() const { return stopped_; }

 private:
  // The free slots by domain; without one, those that nobody was given yet.
  using Free = std::map<std::optional<Domain>, std::vector<Slot>>;

  std::optional<Domain> DomainOf(Slot slot) const;
  std::uint64_t FreeOf(std::optional<Domain> domain) const;
  Job FreeOne(std::optional<Domain> domain);
  Job FreeSlot(Slot slot);

  bool aimed_ = false;
  std::uint64_t wanted_ = 0;
  std::uint64_t most_ = 0;
  bool stopped_ = false;
  KeyTable table_;
  std::vector<Slot> unused_;  // without memory
  std::map<Slot, HostMemory> slots_;
  Free free_;
  std::vector<Slot> given_up_;
};

}  // namespace tessera::mover
