// What `tessera trace` writes (docs/trace.md), as a record of what vGPUs used.
#pragma once

#include <istream>
#include <string>

#include "base/result.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// A tenant with samples for each vGPU of the trace. Its duty is the part of each interval in which it had work: it ran,
// or waited for its turn. Its memory is the most that it had in the interval, on the GPU and swapped. `interval` is
// made longer for traces of more than 100,000 of them. EINVAL: no JSON, or not of `tessera trace`; ERANGE: too long, or
// too many vGPUs. The file is read piece by piece: what is kept are the samples.
Result<Workload> ReadTraceJson(std::istream& text, const std::string& source, Nanos interval);

}  // namespace tessera::plan
