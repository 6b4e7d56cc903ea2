// The daemon's trace: one ring for all of it, as there is one log. On the event loop's thread.
#pragma once

#include <string>

#include "server/record/trace_ring.h"

namespace tessera::server::trace {

inline constexpr const char* kFile = "/trace.ring";      // in the run directory, of the daemon that runs
inline constexpr const char* kLastFile = "/trace.last";  // and what was saved when something went wrong

// Traces into <run-dir>/trace.ring from now on, or into memory alone where there is no room for that. What a daemon
// left there that did not end in order becomes trace.last.
void Begin(const std::string& run_dir);
// The daemon ends in order: there is nothing to look at.
void End();

// Where nothing was begun, as in tests, these do nothing.
void Note(const TraceRecord& record);
void NameVGpu(std::uint64_t id, std::string_view name);
void NameProgram(pid_t pid, std::string_view name);

// The records that ended since then. Empty where nothing was begun.
TraceCopy Copy(Nanos since);
// Everything, for SaveLast. Empty where nothing was begun.
std::string Bytes();
// Any thread. Replaces trace.last.
Result<void> SaveLast(const std::string& run_dir, const std::string& bytes);

}  // namespace tessera::server::trace
