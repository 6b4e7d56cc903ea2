#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"
#include "mover/pool/pool.h"

namespace tessera::mover {

// Slots that two pools have for a while: which of its slots a pool lends to another GPU's, and the place of those that
// it is lent. Makes and frees no memory itself. For the loop's thread.
class PoolLending {
 public:
  // The pool outlives this object.
  explicit PoolLending(Pool& pool) : pool_(pool) {}

  // Another GPU's pool is to have what this program has parked: those slots are for it only, from now on. How many
  // there are. None are lent if something of it is not parked: EBUSY.
  Result<std::uint64_t> Lend(pid_t owner);
  // Whether there is a slot with the memory of this entry, and what lies there; one that was given up, and has its
  // memory still, is the owner's again. EBUSY: the memory is there, and in use or on its way out.
  Result<bool> Has(const KeyTable::Entry& entry);
  // Adds a slot that another GPU's pool lent, with what lies there, for its owner to claim. A free slot leaves the pool
  // if there is no place otherwise. False: there is no place, and the memory is still the caller's.
  bool Add(const KeyTable::Entry& entry, HostMemory& memory);
  // Memory that another pool was to lend, and did not: it is freed as slots are.
  void GiveUp(HostMemory memory) { pool_.vacated_.push_back({.memory = std::move(memory)}); }

 private:
  Pool& pool_;
};

}  // namespace tessera::mover
