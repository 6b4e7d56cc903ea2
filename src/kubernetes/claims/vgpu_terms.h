// Terms of a claim's vGPU, as the daemon's API takes them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "kubernetes/claims/claim.h"

namespace tessera::kubernetes {

inline constexpr const char* kParametersVersion = "gpu.tessera.dev/v1alpha1";
inline constexpr const char* kParametersKind = "VGpuConfig";

// The fields of POST /v1/vgpus for a device of the claim, but for name and gpu: the consumed capacity, and the
// parameters that are for its request, later ones over earlier ones. ENOSPC: there is no memory for it. EINVAL with the
// field's name: a parameter is unknown or of the wrong type. What a right value is, the daemon decides.
//
// Capacity `memory` is what the vGPU is promised and may have on the GPU, `swap` what it may have beside it in host
// memory, `compute` the percentage of time that it is promised.
Result<Json> TermsOf(const Claim& claim, const AllocatedDevice& device);

}  // namespace tessera::kubernetes
