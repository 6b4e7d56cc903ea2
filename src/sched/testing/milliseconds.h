#pragma once

#include "base/clock.h"

namespace tessera::sched {

inline constexpr Nanos kMs = kMillisecond;

}  // namespace tessera::sched
