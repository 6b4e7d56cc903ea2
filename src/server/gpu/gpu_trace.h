#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "server/channels/channel_server.h"
#include "server/gpu/placement.h"
#include "server/model/vgpu.h"
#include "server/record/trace_ring.h"

namespace tessera::server {

// Tells the trace that a phase of the process's suspension ends and `next` begins. On the event loop's thread.
void NotePhase(std::uint32_t gpu, const Process& process, SuspensionPhase next, Nanos now);

// Tells the trace where the memory of one GPU's vGPUs lies, and completes copies of the trace by the states that have
// lasted since before it begins.
class GpuTrace {
 public:
  // Everything that is given outlives the object.
  GpuTrace(std::uint32_t gpu, const std::vector<VGpu*>& vgpus, ChannelServer& channels, const Placement& placement)
      : gpu_(gpu), vgpus_(vgpus), channels_(channels), placement_(placement) {}

  // Records where the vGPU's memory lies, if that changed; no more often than a timeline can show.
  void NoteMemory(VGpu& vgpu, Nanos now) const;
  void NoteMemory(Nanos now) const;

  // Adds the states that have not changed since then, of which the copy has no record.
  void CopyPresent(TraceCopy& copy, Nanos since) const;

 private:
  const std::uint32_t gpu_;
  const std::vector<VGpu*>& vgpus_;
  ChannelServer& channels_;
  const Placement& placement_;
};

}  // namespace tessera::server
