// SMs that vGPUs of a space have for themselves (sm.reserved).
#pragma once

#include <vector>

#include "base/result.h"
#include "server/model/vgpu.h"

namespace tessera::server {

// Gives a vGPU that is about to enter its space its SMs, beside those of the others: `all` are the vGPUs of the
// machine. It keeps those that it has already, if they are free: an earlier daemon gave it these. Either all vGPUs of a
// space have SMs of their own, or none has: a limit is no place, so it would overlap with one. EINVAL: the others of
// the space are of the other kind; ENOSPC: no piece is wide enough.
Result<void> PlaceSms(VGpu& vgpu, const std::vector<VGpu*>& all);

// EINVAL if a vGPU would have other SMs, or they would be its own no longer. Its programs work in them.
Result<void> KeepsSms(const sched::SpacePlace& before, const sched::SpacePlace& after);

}  // namespace tessera::server
