#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace tessera {

// When a process was started, in clock ticks since boot (field 22 of proc(5) stat): with the pid it names one process
// and no later one of the same pid. ESRCH if there is none.
Result<std::uint64_t> ProcessStart(pid_t pid);

// A process, and no later one of the same pid.
struct ProcessName {
  pid_t pid = 0;
  std::uint64_t start = 0;  // ProcessStart
  bool operator==(const ProcessName&) const = default;
};

}  // namespace tessera
