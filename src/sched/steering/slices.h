// From shares to slices: pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// What part of the GPU's time each of those is due that have work at the same time, [0, 1]: its request, and by weight
// of what the requests leave; no more than its limit, the rest of which goes to the others. The sum is 1, or that of
// the limits if that is less.
std::vector<double> DueParts(std::span<const Shares> shares);

struct SliceBounds {
  Nanos mean;   // > 0
  Nanos least;  // 0 < least <= most
  Nanos most;
};

// Slices that divide the time like `parts` (each >= 0, not all 0; need not sum to 1). Their mean is `mean` unless the
// least would be too short: then all are longer, up to kMostStretched for the longest; what that does not suffice for
// is clipped.
std::vector<Nanos> SlicesFor(std::span<const double> parts, const SliceBounds& bounds);

// The longest turn that others wait for the sake of a tiny share.
inline constexpr Nanos kMostStretched = 200 * kMillisecond;

}  // namespace tessera::sched
