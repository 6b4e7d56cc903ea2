#pragma once

#include <sys/types.h>

#include <span>

#include "base/result.h"
#include "server/model/vgpu.h"

namespace tessera::server {

// Whether the driver can save the program whose processes these are, and restore it. ENOTSUP with the first thing that
// it uses and that is in the way, by name: the driver would refuse, or lose the program (docs/hardware-log.md). ESRCH
// if there is no process.
Result<void> MayLeave(pid_t pid, std::span<const Process* const> processes);

}  // namespace tessera::server
