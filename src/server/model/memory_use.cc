#include "server/model/memory_use.h"

#include "sched/residency/bytes.h"

namespace tessera::server {

std::uint64_t MemoryUse::Credit() const {
  const std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(credit, 0)), reserved);
}

// What takes a slot has been asked for, a part of the slot at least.
std::uint64_t MemoryUse::Blank() const {
  const std::uint64_t blank = page->blank.load(std::memory_order_relaxed);
  const std::uint64_t planned = page->blank_planned.load(std::memory_order_relaxed);
  const std::uint64_t most = (sched::kSlotBytes / sched::kLeastInSlot - 1) * reserved;
  return std::min(blank, most) + std::min(planned, most - std::min(blank, most));
}

}  // namespace tessera::server
