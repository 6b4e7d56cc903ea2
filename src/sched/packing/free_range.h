#pragma once

#include <optional>
#include <vector>

#include "sched/packing/rectangle.h"

namespace tessera::sched {

// A part of a GPU's SMs that a vGPU has for itself: [from, from + width), in [0, kWhole].
struct SmRange {
  Part from = 0, width = 0;

  Part End() const { return from + width; }
  friend bool operator==(const SmRange&, const SmRange&) = default;
};

// Whether the range lies in the whole, and shares nothing with those that are `taken`.
bool IsFree(const std::vector<SmRange>& taken, const SmRange& range);
// Where the first range of this width is free beside those that are `taken`, which share none; nullopt: nowhere. Ranges
// are not moved, because programs run in them: what is free may be in pieces.
std::optional<Part> FirstFree(std::vector<SmRange> taken, Part width);
// The widest range that is free beside them.
Part WidestFree(std::vector<SmRange> taken);

}  // namespace tessera::sched
