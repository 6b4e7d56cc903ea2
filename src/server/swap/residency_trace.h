// Where the time goes when memory is moved: a line of the log for each step, at debug level. Seconds are of
// CLOCK_MONOTONIC, so that they can be laid beside what a program says of itself (tests/hw/harness/timeline.py).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "server/model/vgpu.h"
#include "server/record/log.h"

namespace tessera::server {

inline double TraceSeconds(Nanos at) { return static_cast<double>(at) / static_cast<double>(kSecond); }

// `step` is one word; `out` and `in` are bytes.
inline void Trace(const Process& process, std::string_view step, std::uint64_t out = 0, std::uint64_t in = 0) {
  log::Debug("memory at {:.6f}: process {} {} {} {}", TraceSeconds(MonotonicNow()), process.pid, step, out, in);
}

inline void Trace(const VGpu& vgpu, std::uint64_t target, bool runs, Nanos at) {
  log::Debug("memory at {:.6f}: vGPU {} {} {}", TraceSeconds(at), vgpu.spec.name, runs ? "runs" : "waits", target);
}

}  // namespace tessera::server
