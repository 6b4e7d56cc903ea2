// Units: the parts of a chunk that have GPU memory, or that are to be copied.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::wire {

// Part of a chunk, in bytes: the smallest piece of GPU memory that the driver makes. Blocks of this size or more begin
// where a unit begins.
inline constexpr std::uint64_t kUnitBytes = 2u << 20;
inline constexpr std::uint32_t kUnitsPerChunk = 32;

// A set of units of one chunk: bit n is unit n.
using Units = std::uint32_t;
inline constexpr Units kAllUnits = ~Units{0};

constexpr std::uint32_t CountOf(Units units) { return static_cast<std::uint32_t>(std::popcount(units)); }
constexpr std::uint64_t BytesOf(Units units) { return CountOf(units) * kUnitBytes; }

// Calls `visit` with the first unit of each run of neighbours, and how many there are in it.
template <typename Visit>
constexpr void ForEachRun(Units units, Visit visit) {
  for (std::uint32_t first = 0; first < kUnitsPerChunk;) {
    const Units rest = units >> first;
    if (rest == 0) return;
    first += static_cast<std::uint32_t>(std::countr_zero(rest));
    const auto length = static_cast<std::uint32_t>(std::countr_one(units >> first));
    visit(first, length);
    first += length;
  }
}

// The first unit of each run of neighbours.
constexpr Units BeginsOfRuns(Units units) { return units & ~(units << 1); }

// Pieces of memory of a chunk's `units`, one behind the other: each begins at a unit of `begins`, and ends where the
// next one begins or the run ends. Whether that is possible: no piece begins where there is no unit, and none is
// missing.
constexpr bool ArePieces(Units units, Units begins) {
  return (begins & ~units) == 0 && (BeginsOfRuns(units) & ~begins) == 0;
}
// Units of the piece that begins at unit `first`.
constexpr std::uint32_t LengthOfPiece(Units units, Units begins, std::uint32_t first) {
  const Units rest = first + 1 < kUnitsPerChunk ? ~Units{0} << (first + 1) : 0;
  const Units ends = (begins | ~units) & rest;
  return (ends == 0 ? kUnitsPerChunk : static_cast<std::uint32_t>(std::countr_zero(ends))) - first;
}
// Calls `visit` with the first unit of each piece, and how many there are in it.
template <typename Visit>
constexpr void ForEachPiece(Units units, Units begins, Visit visit) {
  for (Units left = begins; left != 0; left &= left - 1) {
    const auto first = static_cast<std::uint32_t>(std::countr_zero(left));
    visit(first, LengthOfPiece(units, begins, first));
  }
}

}  // namespace tessera::wire
