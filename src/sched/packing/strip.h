// The height of a strip that holds the rectangles of one space.
#pragma once

#include <vector>

#include "sched/packing/rectangle.h"

namespace tessera::sched {

// No packing is lower: the longest rectangle, the sum of those of which no two fit side by side, the area.
Part LeastThinkable(const std::vector<Rectangle>& rectangles);

// The height of the lowest packing that was found, by shelves or by maximal rectangles; within a tenth of a percent of
// what these can do. Rectangles without time or SMs need nothing. Never more than shelves need, so at most 1.7 times
// the best packing and one longest rectangle (Coffman, Garey, Johnson and Tarjan 1980). Not monotone: fewer or smaller
// rectangles may need more. A caller that only takes away or lowers keeps the packing that was there.
Part LeastHeight(std::vector<Rectangle> rectangles);

// The part of a GPU's time in which the token scheduler keeps these requests of one space, all busy.
//
// A packing is only a bound for that. It is a plan, and the scheduler follows none: it takes who is first in line,
// fills the SMs beside it, and does not see who would fit together later. Two narrow vGPUs that run one after the other
// beside a third make a wide one wait twice. So the packing may fill nine tenths of the time. It may fill all of it
// where little can be arranged wrongly: all vGPUs fit side by side, or only those that want the same time share a
// shelf. docs/scheduler.md has the figures.
Part TimeToKeep(std::vector<Rectangle> rectangles);

}  // namespace tessera::sched
