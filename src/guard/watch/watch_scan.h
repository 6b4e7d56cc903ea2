#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tessera::guard {

// The processes that have /dev/nvidiactl open, in ascending order. Sees those only whose descriptors the caller may
// look at: all for root, its own user's for others (ptrace(2), PTRACE_MODE_READ). Reads every process's descriptors,
// about a microsecond each: for once at the start. `proc` is where proc(5) is mounted.
std::vector<pid_t> FindGpuProcesses(const std::string& proc = "/proc");

// The name of a process, at most 15 bytes; empty if there is none.
std::string ProcessName(pid_t pid, const std::string& proc = "/proc");

}  // namespace tessera::guard
