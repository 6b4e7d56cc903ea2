#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mover/pool/pool.h"

namespace tessera::mover {

// Slots of a GPU's memory in the pool, which programs' memory passes on its way to that GPU. They count in none of the
// pool's figures, and leave it when they come free. Makes and frees no memory itself. For the loop's thread.
class PoolTransit {
 public:
  // The pool outlives this object.
  explicit PoolTransit(Pool& pool) : pool_(pool) {}

  // One more, for what this owner has. Requires the pool's HasPlace.
  void Add(pid_t owner, std::uint64_t number, HostMemory memory);
  // Of those that nothing was put into.
  std::optional<Slot> Take(pid_t owner);
  std::uint64_t FreeFor(pid_t owner) const;
  void GiveUp(pid_t owner);
  // Whether this pool made the memory of this entry, for the owner's way here. It has what lies there from now on.
  bool Adopt(const KeyTable::Entry& entry);

 private:
  Pool& pool_;
  std::map<pid_t, std::vector<Slot>> free_;  // by owner; none is empty
};

}  // namespace tessera::mover
