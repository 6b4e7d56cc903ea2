#include "mover/pool/pool_lending.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::mover {

Result<std::uint64_t> PoolLending::Lend(pid_t owner) {
  std::vector<Slot> parked;
  for (const auto& [slot, memory] : pool_.slots_) {
    const KeyTable::Entry& entry = pool_.EntryOf(slot);
    if (entry.key == 0 || entry.owner != owner || std::ranges::count(pool_.given_up_, slot) > 0) continue;
    if (!entry.Has(KeyTable::Entry::kParked)) return Fail(EBUSY, "the program holds something of the pool");
    parked.push_back(slot);
  }
  for (const Slot slot : parked) pool_.table_.Mark(slot, KeyTable::Entry::kShared);
  return parked.size();
}

Result<bool> PoolLending::Has(const KeyTable::Entry& entry) {
  for (const auto& [slot, memory] : pool_.slots_) {
    const KeyTable::Entry& own = pool_.EntryOf(slot);
    if (own.memory != entry.memory) continue;
    if (own.key == entry.key && own.owner == entry.owner && pool_.table_.IsLeft(slot)) return true;
    if (own.key == 0 && pool_.TakeBack(slot)) {
      pool_.table_.Set(slot, entry);
      return true;
    }
    return Fail(EBUSY, "the memory is in the pool already");
  }
  return false;
}

bool PoolLending::Add(const KeyTable::Entry& entry, HostMemory& memory) {
  // No two entries may be about the same memory.
  std::optional<Slot> slot = pool_.Earlier(entry.memory);
  if (!slot && pool_.unused_.empty()) {
    const auto free = std::ranges::find_if(pool_.free_, [](const auto& each) { return !each.second.empty(); });
    if (free == pool_.free_.end()) return false;
    pool_.vacated_.push_back(pool_.RemoveFree(free->first));
  }
  if (!slot) slot = pool_.unused_.back();
  std::erase(pool_.unused_, *slot);
  pool_.Insert(*slot, std::move(memory));
  pool_.table_.Set(*slot, entry);
  return true;
}

}  // namespace tessera::mover
