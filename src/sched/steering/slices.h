// From shares to slices: pure arithmetic.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// The part of the GPU's time, in [0, 1], that each of several vGPUs is due that have work at the same time: its
// request, and a share by weight of what the requests leave; no more than its limit, and what a limit leaves goes to
// the others. The sum is 1, or the sum of the limits if that is less.
//
// `lost`, in [0, 1): the part of the time that switches take. Requests are of all the time, so they are a larger part
// of what is left; where that is too little for them, all have less alike.
std::vector<double> DueParts(std::span<const Shares> shares, double lost = 0);

struct SliceBounds {
  Nanos mean;   // > 0
  Nanos least;  // 0 < least <= most
  Nanos most;
};

// Slices that divide the time like `parts` (each >= 0, not all 0; need not sum to 1). Their mean is `mean` unless the
// shortest would be too short: then all are longer, up to kMostStretched for the longest. A slice that is too short
// even then is clipped.
std::vector<Nanos> SlicesFor(std::span<const double> parts, const SliceBounds& bounds);

// The longest slice that others have to wait for because of a tiny share.
inline constexpr Nanos kMostStretched = 200 * kMillisecond;

}  // namespace tessera::sched
