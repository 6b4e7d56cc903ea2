#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/page.h"

namespace tessera::server {

// The reasons why memory cannot be moved, as all faces name them: those of wire::PinReason in its order, then those
// that the daemon knows by itself.
inline constexpr std::array kPinNames = {"small",   "exported", "registered", "pool",    "vmm",    "managed", "array",
                                         "unpaged", "graph",    "multicast",  "context", "driver", "no_shim", "other"};
// Of a process, bytes by reason.
using PinnedByReason = std::array<std::uint64_t, kPinNames.size()>;

// What the daemon knows of a process's pinned memory, in bytes.
struct PinnedTotals {
  std::uint64_t counted = 0;  // that its shim counts
  std::uint64_t context = 0;
  std::uint64_t driver = 0;   // that the device shows beyond all that is counted: graphs', kernels' local memory
  std::uint64_t no_shim = 0;  // of a program without a shim

  std::uint64_t Sum() const { return counted + context + driver + no_shim; }
};

// Divides the totals by reason. `claims` is Page::pinned_by, which the program writes: of each figure is believed what
// the totals leave, so that the result always adds up to them. What no claim names is "other".
PinnedByReason DividePinned(const std::array<std::uint64_t, wire::kPinReasons>& claims, const PinnedTotals& totals);

// All that one process's page claims.
std::array<std::uint64_t, wire::kPinReasons> PinClaims(const wire::Page& page);
// All of a process that has no shim.
PinnedByReason PinnedWithoutShim(std::uint64_t bytes);

}  // namespace tessera::server
