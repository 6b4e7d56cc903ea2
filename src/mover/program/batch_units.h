// Units of the chunks that a message names, or that are copied together.
#pragma once

#include <cstdint>
#include <vector>

#include "mover/program/copier.h"
#include "wire/line.h"

namespace tessera::mover {

// The parts of an offer or a want, one for each of its chunks.
inline std::vector<ChunkPart> PartsOf(const wire::LineMessage& message) {
  std::vector<ChunkPart> parts;
  for (std::uint32_t n = 0; n < message.count; ++n)
    parts.push_back({.units = message.units[n], .begins = message.begins[n]});
  return parts;
}

// Units of memory that the chunks of an offer or a want take; 0 if a part of it cannot be true.
inline std::uint64_t UnitsIn(const wire::LineMessage& message) {
  std::uint64_t units = 0;
  for (std::uint32_t n = 0; n < message.count; ++n) {
    const bool possible = IsWhole(message, n) || wire::ArePieces(message.units[n], message.begins[n]);
    if (message.units[n] == 0 || !possible) return 0;
    units += TakenBy(message, n);
  }
  return units;
}

// The fewest chunks that can come to so many units.
inline std::uint64_t ChunksFor(std::uint64_t units) {
  return units / wire::kUnitsPerChunk + (units % wire::kUnitsPerChunk != 0 ? 1 : 0);
}

// Units of memory that the chunks of a batch take, and how many of them are not copied.
inline std::uint64_t UnitsOf(const Batch& batch) {
  std::uint64_t units = 0;
  for (const Batch::Entry& entry : batch.entries) units += entry.part.Taken();
  return units;
}

inline std::uint64_t HolesOf(const Batch& batch) {
  std::uint64_t holes = 0;
  for (const Batch::Entry& entry : batch.entries) holes += entry.part.Taken() - wire::CountOf(entry.part.units);
  return holes;
}

}  // namespace tessera::mover
