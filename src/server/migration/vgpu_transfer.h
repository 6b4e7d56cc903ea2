#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/gpu/gpu_server.h"

namespace tessera::server {

// The vGPU, which outlives this, and the index of the GPU that it goes to.
struct VGpuTransfer {
  VGpu* vgpu = nullptr;
  std::uint32_t to = 0;
};

// Moves vGPUs to other GPUs, with their processes, all of them or none. The processes stand still, and their memory has
// left their GPUs. ENOSPC and others: a GPU cannot keep what a vGPU was promised; then nothing has changed. On the
// loop's thread.
Result<void> Transfer(const std::vector<VGpuTransfer>& transfers, const std::vector<std::unique_ptr<GpuServer>>& gpus,
                      Nanos now);

}  // namespace tessera::server
