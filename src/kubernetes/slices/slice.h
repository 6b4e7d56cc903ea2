// ResourceSlices of resource.k8s.io/v1: the GPUs of this node, as the scheduler sees them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/json.h"
#include "kubernetes/slices/health_board.h"

namespace tessera::kubernetes {

using client::Json;

// A GPU, and what is left of it for claims: vGPUs that are not of claims have taken theirs.
struct OfferedGpu {
  std::string uuid, model;
  std::string driver;          // version of NVIDIA's driver; empty: not known
  std::string nvlink_group;    // UUID of the first of the GPUs that NVLink joins; empty: none
  bool enforces_time = false;  // in the middle of kernels, by channels
  bool failed = false;         // it had a fault that it does not recover from
  std::string why;             // for people, if so
  std::uint64_t memory = 0;    // bytes
  std::uint64_t swap = 0;      // bytes of host memory for what does not fit
  double compute_pct = 0;      // of its time
};

// Of the daemon's answers to GET /v1/gpus and GET /v1/vgpus. The scheduler itself counts what claims take.
std::vector<OfferedGpu> OfferedGpus(const Json& gpus, const Json& vgpus);

// Sizes are multiples of this, and a claim that asks for no size gets a tenth of the GPU.
inline constexpr std::uint64_t kMemoryStep = 64ull << 20;

// The `spec.devices` of the node's slice. A GPU of which nothing is left is there all the same, as claims may use it.
Json DevicesOf(const std::vector<OfferedGpu>& gpus);

std::vector<DeviceHealth> HealthOf(const std::vector<OfferedGpu>& gpus);

// The slice itself, but for what the API server adds. `node_uid`: of the Node object that owns it.
Json SliceOf(const std::string& node, const std::string& node_uid, Json devices, std::uint64_t generation);

}  // namespace tessera::kubernetes
