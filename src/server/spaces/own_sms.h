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

// Finds SMs for a vGPU whose place is about to be `changed`, and sets where they begin: where they began if they are
// free there. The SMs of its programs count as free. EINVAL: they would be its own no longer, or are not now;
// EBUSY: a program cannot move; ENOSPC as above.
Result<void> MoveSms(const VGpu& vgpu, sched::SpacePlace& changed, const std::vector<VGpu*>& all);

// Tells the programs of all vGPUs of the machine where their SMs are, and which may use all (sm.burst), because no
// other vGPU of their space has programs.
void TellSms(const std::vector<VGpu*>& all);

// The place as pages and messages have it.
wire::SmPlace WirePlaceOf(const sched::SpacePlace& place);

// Whether a program works in other SMs than it was told, because it could not move yet.
bool HasOtherSms(const Process& process);

}  // namespace tessera::server
