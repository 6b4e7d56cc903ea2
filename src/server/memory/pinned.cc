#include "server/memory/pinned.h"

#include <algorithm>
#include <string_view>

namespace tessera::server {
namespace {

constexpr std::size_t At(std::string_view name) {
  std::size_t i = 0;
  while (kPinNames[i] != name) ++i;
  return i;
}
constexpr auto kGraph = static_cast<std::size_t>(wire::PinReason::kGraph);
static_assert(At("small") == static_cast<std::size_t>(wire::PinReason::kSmall));
static_assert(At("exported") == static_cast<std::size_t>(wire::PinReason::kExported));
static_assert(At("registered") == static_cast<std::size_t>(wire::PinReason::kRegistered));
static_assert(At("pool") == static_cast<std::size_t>(wire::PinReason::kPool));
static_assert(At("vmm") == static_cast<std::size_t>(wire::PinReason::kVmm));
static_assert(At("managed") == static_cast<std::size_t>(wire::PinReason::kManaged));
static_assert(At("array") == static_cast<std::size_t>(wire::PinReason::kArray));
static_assert(At("unpaged") == static_cast<std::size_t>(wire::PinReason::kUnpaged));
static_assert(At("multicast") == static_cast<std::size_t>(wire::PinReason::kMulticast));
static_assert(At("graph") == kGraph && At("context") == wire::kPinReasons);

}  // namespace

PinnedByReason DividePinned(const std::array<std::uint64_t, wire::kPinReasons>& claims, const PinnedTotals& totals) {
  PinnedByReason bytes{};
  std::uint64_t left = totals.counted;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (i == kGraph) continue;
    bytes[i] = std::min(claims[i], left);
    left -= bytes[i];
  }
  bytes[At("other")] = left;
  bytes[kGraph] = std::min(claims[kGraph], totals.driver);
  bytes[At("driver")] = totals.driver - bytes[kGraph];
  bytes[At("context")] = totals.context;
  bytes[At("no_shim")] = totals.no_shim;
  return bytes;
}

std::array<std::uint64_t, wire::kPinReasons> PinClaims(const wire::Page& page) {
  std::array<std::uint64_t, wire::kPinReasons> claims{};
  for (std::size_t i = 0; i < claims.size(); ++i) claims[i] = page.pinned_by[i].load(std::memory_order_relaxed);
  return claims;
}

PinnedByReason PinnedWithoutShim(std::uint64_t bytes) {
  PinnedByReason all{};
  all[At("no_shim")] = bytes;
  return all;
}

}  // namespace tessera::server
