#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pager/chunks/region.h"

namespace tessera::pager {

inline constexpr std::uint64_t kGranule = 2u << 20;  // blocks of this size or more are aligned to it
inline constexpr std::uint64_t kUnit = 512;          // smaller ones are aligned to this, as cuMemAlloc aligns at least

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The multiple in which a block of this size takes addresses.
constexpr std::uint64_t UnitOf(std::uint64_t bytes) { return bytes < kGranule ? kUnit : kGranule; }
// The bytes of addresses that a block of this size takes.
constexpr std::uint64_t AddressesOf(std::uint64_t bytes) { return RoundUp(bytes, UnitOf(bytes)); }

// Addresses that a block may get.
struct Place {
  std::uint64_t begin = 0, bytes = 0;
  ChunkSpan chunks;
  std::size_t missing = 0;  // of `chunks`: those without memory
};

// The place for a block of `bytes` (not 0) that needs the fewest new chunks; among those the one in the smallest free
// part. Nothing if no free part is large enough.
std::optional<Place> FindPlace(const Region& region, std::uint64_t bytes);

}  // namespace tessera::pager
