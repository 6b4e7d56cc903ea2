#pragma once

#include <algorithm>
#include <cstdint>

#include "mover/program/batch_units.h"
#include "wire/line.h"

namespace tessera::mover {

inline constexpr std::uint64_t kAnyHoles = UINT64_MAX;  // all chunks come back whole

// What the daemon wishes to be moved of a program in one direction, and has not been. All in units.
struct MoveTask {
  bool pending = false;     // the daemon waits for its end
  std::uint64_t holes = 0;  // out, not 0: chunks with holes go; in: what may be holes of what comes, or kAnyHoles
  std::uint64_t left = 0;   // that the program was not asked for yet
  int error = 0;            // why it is asked for no more

  // More is wished.
  void Add(std::uint64_t units, Direction direction, std::uint64_t more_holes) {
    const bool adds = direction == Direction::kIn && more_holes != kAnyHoles && holes != kAnyHoles;
    holes = adds ? holes + std::min(more_holes, units) : more_holes;
    left += units;
  }
  // What the next chunks that come in may take for holes, whatever becomes of the chunks that were asked for before.
  std::uint32_t HolesFor(std::uint64_t asked_before) const {
    if (holes == kAnyHoles) return wire::kAnyHoles;
    const std::uint64_t reserved = asked_before * (wire::kUnitsPerChunk - 1);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(holes - std::min(holes, reserved), wire::kAnyHoles - 1));
  }
  // A copy begins. Whole chunks go out, so it may be a little more than was wished.
  void Begin(const Batch& batch) {
    left -= std::min(left, UnitsOf(batch));
    if (batch.direction == Direction::kIn && holes != kAnyHoles) holes -= std::min(holes, HolesOf(batch));
  }
};

}  // namespace tessera::mover
