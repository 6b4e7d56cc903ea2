// Terms of a claim's vGPU, as the daemon's API takes them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "kubernetes/claims/claim.h"

namespace tessera::kubernetes {

// What a claim says of the vGPU for one of its devices.
struct VGpuTerms {
  Json fields;               // of POST /v1/vgpus, but for name, gpu, gang and key
  bool kernel_gate = false;  // containers must be behind the kernel gate
};

// The consumed capacity, and the parameters that are for the device's request, later ones over earlier ones. Terms that
// neither names are in the fields with their defaults, so that the same call also takes terms back. ENOSPC: there is no
// memory for it. EINVAL with the field's name: a parameter is unknown or of the wrong type. What a right value is, the
// daemon decides.
//
// Capacity `memory` is what the vGPU is promised and may have on the GPU, `swap` what it may have beside it in host
// memory, `compute` the percentage of time that it is promised, `sm` the percentage of the SMs in its space. A space is
// shared by claims of the same namespace on the same GPU.
Result<VGpuTerms> TermsOf(const Claim& claim, const AllocatedDevice& device);

}  // namespace tessera::kubernetes
