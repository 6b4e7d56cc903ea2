#pragma once

#include <string>

#include "server/access/caller.h"
#include "server/daemon/daemon.h"
#include "server/daemon/overview.h"

namespace tessera::face {

// The answer to GET /v1/overview. GPUs and spaces are as elsewhere in the API; vGPUs and processes have the fields that
// a page draws, because there may be hundreds and pages ask every second. `time_us`: microseconds since 1970 at which
// it was made. Any thread.
std::string WriteOverview(const server::Overview& overview, const server::Caller& caller,
                          const server::DaemonTraits& traits, std::int64_t time_us);

}  // namespace tessera::face
