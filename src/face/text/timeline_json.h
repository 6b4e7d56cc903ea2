#pragma once

#include <string>

#include "base/clock.h"
#include "server/record/trace_ring.h"

namespace tessera::face {

// The answer to GET /v1/timeline, of a copy of the trace: for each vGPU how much of each second it ran and waited, and
// the moves of memory and the freezes that were not the scheduler's own. Short, however long the trace is: a page draws
// its first picture from it. `past`: nanoseconds before the copy; it is cut to the time that the trace knows. Any
// thread.
std::string WriteTimeline(const server::TraceCopy& trace, Nanos past);

}  // namespace tessera::face
