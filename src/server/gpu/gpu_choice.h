#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/gpu/gpu_server.h"
#include "server/model/vgpu.h"

namespace tessera::server {

using Gpus = std::vector<std::unique_ptr<GpuServer>>;

// The GPUs that "auto" (or nothing), an index or a UUID names; for "auto" that with the most room comes first. ENOENT:
// there is none.
Result<std::vector<std::uint32_t>> GpusNamed(const std::optional<std::string>& gpu, const Gpus& gpus);

// The candidates in the order in which they are to be tried for a new vGPU. One that is promised time or memory goes to
// the fullest GPU that has room for it (sched::Place), so that promises pack; for others the order stays, and so it
// does where none has the memory. ENOSPC: none of them has the time; says why of each, and the nearest size that would
// fit. On the loop's thread.
Result<std::vector<std::uint32_t>> OrderByRoom(const VGpuSpec& newcomer, std::vector<std::uint32_t> candidates,
                                               const Gpus& gpus);

}  // namespace tessera::server
