#include "mover/pool/pool_transit.h"

#include <algorithm>
#include <utility>

namespace tessera::mover {

void PoolTransit::Add(pid_t owner, std::uint64_t number, HostMemory memory) {
  const Slot slot = pool_.unused_.back();
  pool_.unused_.pop_back();
  pool_.table_.Reset(slot, number);
  pool_.table_.Mark(slot, KeyTable::Entry::kTransit);
  pool_.Insert(slot, std::move(memory));
  free_[owner].push_back(slot);
}

std::optional<Slot> PoolTransit::Take(pid_t owner) {
  const auto found = free_.find(owner);
  if (found == free_.end()) return {};
  const Slot slot = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) free_.erase(found);
  return slot;
}

std::uint64_t PoolTransit::FreeFor(pid_t owner) const {
  const auto found = free_.find(owner);
  return found == free_.end() ? 0 : found->second.size();
}

void PoolTransit::GiveUp(pid_t owner) {
  while (const auto slot = Take(owner)) pool_.GiveUp(*slot);
}

bool PoolTransit::Adopt(const KeyTable::Entry& entry) {
  const auto made = free_.find(entry.owner);
  if (made == free_.end()) return false;
  const auto slot =
      std::ranges::find(made->second, entry.memory, [&](Slot each) { return pool_.EntryOf(each).memory; });
  if (slot == made->second.end()) return false;
  pool_.table_.Set(*slot, entry);
  made->second.erase(slot);
  if (made->second.empty()) free_.erase(made);
  return true;
}

}  // namespace tessera::mover
