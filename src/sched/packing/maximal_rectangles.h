#pragma once

#include <optional>
#include <vector>

#include "sched/packing/rectangle.h"

namespace tessera::sched {

// A strip, as wide as all SMs and of a given height, into which rectangles are put. It keeps the maximal rectangles of
// its free room: each piece of free room lies in one of them, and none lies in another. So a rectangle for which there
// is room anywhere is always put somewhere (J. Jylänki, "A Thousand Ways to Pack the Bin", 2010). Nothing is rotated:
// time is not SMs. Putting one costs the number of free rectangles times the number of those that it cuts.
class MaximalRectangles {
 public:
  // The free rectangle that is chosen: the one that leaves the least along its shorter side, or the least area.
  enum class Fit { kShortSide, kArea };

  MaximalRectangles(Part height, Fit fit) : fit_(fit), free_{{.size = {kWhole, height}}} {}

  // Where the rectangle lies from now on; nullopt if there is no room for it. Both its sides are above 0.
  std::optional<Spot> Put(const Rectangle& rectangle);

  const std::vector<Spot>& free() const { return free_; }

 private:
  void Take(const Spot& taken);

  const Fit fit_;
  std::vector<Spot> free_;
};

}  // namespace tessera::sched
