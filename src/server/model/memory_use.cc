#include "server/model/memory_use.h"

#include "sched/residency/bytes.h"

namespace tessera::server {

std::uint64_t MemoryUse::Credit() const {
  const std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(credit, 0)), reserved);
}

// What takes a slot has been asked for, a part of the slot at least.
std::uint64_t MemoryUse::MostBlank() const { return (sched::kSlotBytes / sched::kLeastInSlot - 1) * reserved; }

std::uint64_t MemoryUse::BlankMade() const {
  return std::min(page->blank.load(std::memory_order_relaxed), MostBlank());
}

std::uint64_t MemoryUse::Blank() const {
  const std::uint64_t made = BlankMade();
  return made + std::min(page->blank_planned.load(std::memory_order_relaxed), MostBlank() - made);
}

}  // namespace tessera::server
