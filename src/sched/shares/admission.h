#pragma once

#include "base/result.h"

namespace tessera::sched {

// ENOSPC if the requests of one GPU would add up to more than all of its time.
Result<void> CheckRequests(double others_pct, double request_pct);

}  // namespace tessera::sched
