#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/gpu/gpu_server.h"
#include "server/model/vgpu.h"
#include "server/model/vgpu_request.h"
#include "server/spaces/space_table.h"

namespace tessera::server {

using Gpus = std::vector<std::unique_ptr<GpuServer>>;

// The GPUs that "auto" (or nothing), an index or a UUID names; for "auto" that with the most room comes first. ENOENT:
// there is none.
Result<std::vector<std::uint32_t>> GpusNamed(const std::optional<std::string>& gpu, const Gpus& gpus);

// Why the GPU takes no new vGPUs, in words that do not name it; empty: it does.
std::string WhyNoNewcomers(GpuServer& gpu);

// The candidates in the order in which they are to be tried for a new vGPU. One that is promised time or memory goes to
// the fullest GPU that has room for it (sched::Place), so that promises pack; for others the order stays, and so it
// does where none has the memory. ENOSPC: none of them has the time; says why of each, and the nearest size that would
// fit. On the loop's thread.
Result<std::vector<std::uint32_t>> OrderByRoom(const VGpuSpec& newcomer, std::vector<std::uint32_t> candidates,
                                               const Gpus& gpus);

// The GPUs on which a new vGPU that is to be as `spec` may be made, in the order in which they are to be tried. A space
// is on one GPU, and so are the vGPUs that enter it. Those of a gang are on different ones, as far as there are such.
// `spaces` may be null. Errors are those of GpusNamed and OrderByRoom. On the loop's thread.
Result<std::vector<std::uint32_t>> CandidatesFor(const VGpuRequest& request, const VGpuSpec& spec, const Gpus& gpus,
                                                 const SpaceTable* spaces);

}  // namespace tessera::server
