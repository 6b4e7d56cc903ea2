#pragma once

#include <string>
#include <vector>

#include "server/record/events.h"
#include "server/record/trace_ring.h"

namespace tessera::face {

// A timeline in Chrome's JSON (Trace Event Format), as https://ui.perfetto.dev opens it: a group of tracks for each
// GPU, in it one for each vGPU (runs, waits and why) and one for each process (frozen and why, moves), and counters of
// memory, slices and of how many vGPUs wait. Times are microseconds of the wall clock, so that profiles of the programs
// can be laid beside it. `events` are shown as instants. docs/trace.md.
std::string WriteTrace(const server::TraceCopy& trace, const std::vector<server::Event>& events);

}  // namespace tessera::face
