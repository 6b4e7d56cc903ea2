#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "server/gpu/gpu_trace.h"
#include "server/gpu/placement.h"
#include "server/memory/memory_server.h"
#include "server/model/process.h"

namespace tessera::server {

// Answers the processes of one GPU that ask for memory (docs/protocol.md): charges it at the memory server, reports
// refusals, and notes what makes a new measurement of the device worth while. Runs on the loop's thread.
class MemoryRequests {
 public:
  struct Hooks {
    std::function<void()> activity;          // memory changes
    std::function<void()> contexts_changed;  // contexts come and go: only the device knows what they take
  };
  // The memory server, the placement and the trace outlive the object.
  MemoryRequests(std::uint32_t gpu, MemoryServer& memory, Placement& placement, const GpuTrace& trace, Hooks hooks);

  // Returns the bytes that were charged: those that were asked for, or 0.
  std::uint64_t Reserve(Process& process, std::uint64_t bytes, Nanos now);
  // Whether a mapping may be made that leaves so much of host memory blank. Its page counts it already. kAskAgain: with
  // that page's count taken back meanwhile.
  MemoryServer::BlankAnswer MayLeaveBlank(Process& process, std::uint64_t bytes, Nanos now);
  void Return(Process& process, std::uint64_t bytes, Nanos now);
  // A context is about to be made: `bytes` are charged for it, or none; `wait`: room for it is being made, and the
  // process is rung when it is to ask again.
  struct Granted {
    std::uint64_t bytes = 0;
    bool wait = false;
  };
  Granted AddContext(Process& process, Nanos now);
  void DropContext(Process& process);

  // Before Count: MemoryServer::Collect.
  void Collect(const VGpu& vgpu, std::uint64_t bytes, Nanos now);
  // The kernel gate counts `bytes` of the process's memory in all. False: it may not have that much; nothing changes.
  bool Count(Process& process, std::uint64_t bytes, Nanos now);
  // The same of memory that it has already, whether it may or not.
  void CountAnyway(Process& process, std::uint64_t bytes);
  // Memory that is not counted otherwise, until the next measurement.
  void NoteMeasured(Process& process, std::uint64_t bytes);

 private:
  void ReportRefusal(Process& process, std::uint64_t bytes, Nanos now) const;
  void ReportRefusal(Process& process, const std::string& text, Nanos now) const;

  const std::uint32_t gpu_;
  MemoryServer& memory_;
  Placement& placement_;
  const GpuTrace& trace_;
  const Hooks hooks_;
};

}  // namespace tessera::server
