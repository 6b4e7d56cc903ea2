#pragma once

#include <vector>

#include "base/result.h"
#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft::ptx {

// Ends a module of which all text has been read: checks its calls, gives its kernels their shared memory and the local
// memory that they and all that they call need. ENOTSUP or EINVAL for calls that cannot be made, or that need too much.
Result<void> FinishCalls(Program& program, std::vector<Kernel>& kernels);

}  // namespace tessera::soft::ptx
