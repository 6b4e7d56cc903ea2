#include "server/model/memory_use.h"

namespace tessera::server {

std::uint64_t MemoryUse::Credit() const {
  const std::int64_t credit = page->memory_credit.load(std::memory_order_relaxed);
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(credit, 0)), reserved);
}

}  // namespace tessera::server
