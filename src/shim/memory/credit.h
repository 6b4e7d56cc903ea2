#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::shim {

// Takes `bytes` of a credit in the shared page, which the daemon may take back at any time. False: it has less.
inline bool TakeCredit(std::atomic<std::int64_t>& from, std::uint64_t bytes) {
  std::int64_t credit = from.load(std::memory_order_relaxed);
  while (credit >= 0 && static_cast<std::uint64_t>(credit) >= bytes) {
    if (from.compare_exchange_weak(credit, credit - static_cast<std::int64_t>(bytes))) return true;
  }
  return false;
}

}  // namespace tessera::shim
