#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace tessera::guard {

// An ioctl that waits behind the gate.
struct GateCall {
  pid_t tid = 0;           // the thread that waits
  std::uint64_t tree = 0;  // the listener it waits behind
  int fd = -1;             // arguments of ioctl(2)
  std::uint64_t request = 0;
  std::uint64_t address = 0;
  bool foreign = false;  // made by a system call of another architecture
};

struct GateAnswer {
  bool pass = false;   // let the kernel go on with the call
  int result = 0;      // else: 0 or a negative errno value
  bool leave = false;  // neither: the daemon ends, and the next one answers
};

// Whether the caller still waits: if not, `tid` may be another thread's by now.
using StillWaits = std::function<bool()>;

}  // namespace tessera::guard
