#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "mover/pool/key_table.h"
#include "mover/pool/pool.h"

namespace tessera::mover {

// Slots with something of programs that do not talk to this mover: their line has ended, or they talked to an earlier
// mover. A program that comes back claims its slots by their keys; other slots go back to the pool. For the loop's
// thread.
class SlotClaims {
 public:
  // Both outlive this object; `table` is the pool's.
  SlotClaims(KeyTable& table, Pool& pool) : table_(table), pool_(pool) {}

  // The slot's program does not talk any more, and may claim it before `until` (CLOCK_MONOTONIC).
  void Leave(Slot slot, Nanos until) { table_.Leave(slot, until); }
  // Programs of an earlier mover may claim theirs before `until`, too.
  void Bound(Nanos until) { table_.Bound(until); }
  // The slot that was left under this key, if it is of `domain`. It is the owner's again.
  std::optional<Slot> Claim(std::uint64_t key, Domain domain, pid_t owner) { return table_.Claim(key, owner, domain); }
  // That program has claimed all that it has: the pool gives up what else it left.
  void Abandon(pid_t owner);
  // Another GPU's mover has the slot of this number, which was left here and lent out, or is to have it no more: it
  // leaves this pool.
  void LetGo(std::uint64_t number);
  bool any() const { return table_.left() > 0; }
  // Gives back to the pool what programs that have ended left, and has it give up what was not claimed in time: its
  // program may still write to it.
  void Sweep(Nanos now);

 private:
  KeyTable& table_;
  Pool& pool_;
};

}  // namespace tessera::mover
