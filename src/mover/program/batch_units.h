// Units of the chunks that a message names, or that are copied together.
#pragma once

#include <cstdint>
#include <vector>

#include "mover/program/copier.h"
#include "wire/line.h"

namespace tessera::mover {

// What an offer or a want says of each of its chunks.
inline std::vector<ChunkPart> PartsOf(const wire::LineMessage& message) {
  std::vector<ChunkPart> parts;
  for (std::uint32_t n = 0; n < message.count; ++n)
    parts.push_back({.units = message.units[n], .begins = message.begins[n]});
  return parts;
}

// What the memory of an offer's or a want's chunks takes; 0 if what is said of one of them cannot be.
inline std::uint64_t UnitsIn(const wire::LineMessage& message) {
  std::uint64_t units = 0;
  for (std::uint32_t n = 0; n < message.count; ++n) {
    const bool possible = IsWhole(message, n) || wire::ArePieces(message.units[n], message.begins[n]);
    if (message.units[n] == 0 || !possible) return 0;
    units += TakenBy(message, n);
  }
  return units;
}

// What the memory of a batch's chunks takes, and how much of that is not copied.
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
