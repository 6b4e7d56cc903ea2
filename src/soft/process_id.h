#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tessera::soft {

// A process that cannot be mistaken for a later one with the same number.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks after boot, field 22 of /proc/PID/stat (proc(5))

  static ProcessId Self();
  // False when the process has ended, also while its parent has not collected it.
  bool Alive() const;
  // By a signal or a debugger: none of its threads runs.
  bool Stopped() const;

  bool operator==(const ProcessId&) const = default;
};

}  // namespace tessera::soft
