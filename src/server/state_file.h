#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/vgpu.h"
#include "wire/protocol.h"

namespace tessera::server {

// state.json: the vGPUs, so that a daemon that starts again has them. Version 1 is
//   {"version":1,"vgpus":[{"name","gpu_uuid","uid","ephemeral","owner_pid","owner_start","memory_limit","memory_max",
//    "compute_request_pct","compute_limit_pct","compute_weight"}]}
// with bytes as integers and absent limits left out.
struct SavedVGpu {
  VGpuSpec spec;
  wire::Uuid gpu;
};

std::string FormatState(const std::vector<SavedVGpu>& vgpus);

// EBADMSG with the reason for anything else than what FormatState writes.
Result<std::vector<SavedVGpu>> ParseState(const std::string& text);

// Reads the file; a missing one is empty.
Result<std::vector<SavedVGpu>> LoadState(const std::string& path);

// Replaces the file: whoever reads it, even after a power failure, sees the old or the new one, whole.
Result<void> SaveState(const std::string& path, const std::string& text);

}  // namespace tessera::server
