#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pager/chunks/region.h"

namespace tessera::pager {

inline constexpr std::uint64_t kGranule = wire::kUnitBytes;  // blocks of this size or more are aligned to it
inline constexpr std::uint64_t kUnit = 512;  // smaller ones are aligned to this, as cuMemAlloc aligns at least

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The multiple in which a block of this size takes addresses.
constexpr std::uint64_t UnitOf(std::uint64_t bytes) { return bytes < kGranule ? kUnit : kGranule; }
// The bytes of addresses that a block of this size takes.
constexpr std::uint64_t AddressesOf(std::uint64_t bytes) { return RoundUp(bytes, UnitOf(bytes)); }

// A block of this size or more gets no units of sparse chunks, but whole chunks, as long as there is room for them: the
// driver works about as long on a unit as on a chunk.
inline constexpr std::uint64_t kFewBytes = 16u << 20;

// Addresses that a block may get.
struct Place {
  std::uint64_t begin = 0, bytes = 0;
  std::uint64_t missing = 0;  // bytes of GPU memory that are to be made for it
};

// The place for a block of `bytes` (not 0) for which the least memory has to be made; among those the one in the
// smallest free part. `whole`: a chunk that has no memory is made whole, and a block of kFewBytes or more lies in no
// units that have none; else only the units that the block needs are made. A chunk that is out, or on its way, gets no
// more memory: such a place is none. Nothing if no free part is large enough.
std::optional<Place> FindPlace(const Region& region, std::uint64_t bytes, bool whole);

}  // namespace tessera::pager
