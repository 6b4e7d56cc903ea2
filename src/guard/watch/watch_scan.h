#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tessera::guard {

// The processes that have /dev/nvidiactl open, in ascending order. It sees processes whose descriptors the caller may
// read: all for root, those of its own user for others (ptrace(2), PTRACE_MODE_READ). Reads the descriptors of every
// process, about a microsecond each, so it is for the start only. `proc` is where proc(5) is mounted.
std::vector<pid_t> FindGpuProcesses(const std::string& proc = "/proc");

// The name of a process, at most 15 bytes; empty if there is none.
std::string ProcessName(pid_t pid, const std::string& proc = "/proc");

}  // namespace tessera::guard
