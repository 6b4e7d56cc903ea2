#include "server/swap/left_memory.h"

#include <algorithm>

#include "wire/line.h"

namespace tessera::server {

void LeftMemory::Kept(std::uint64_t number, const SwapSlots& pool) {
  if (const auto found = slots_.find(number); found != slots_.end()) found->second.pools.insert(&pool);
}

void LeftMemory::Forgotten(std::uint64_t number, const SwapSlots& pool) {
  const auto found = slots_.find(number);
  if (found == slots_.end()) return;
  found->second.pools.erase(&pool);
  if (found->second.pools.empty()) slots_.erase(found);
}

bool LeftMemory::Any(std::optional<std::uint32_t> gpu, pid_t owner) const {
  return std::ranges::any_of(slots_, [&](const auto& each) {
    return each.second.owner == owner && each.second.gpu == gpu.value_or(each.second.gpu);
  });
}

std::map<pid_t, std::uint64_t> LeftMemory::BytesOn(std::uint32_t gpu) const {
  std::map<pid_t, std::uint64_t> bytes;
  for (const auto& [number, slot] : slots_) {
    if (slot.gpu == gpu) bytes[slot.owner] += wire::kChunkBytes;
  }
  return bytes;
}

}  // namespace tessera::server
