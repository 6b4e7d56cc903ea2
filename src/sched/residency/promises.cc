#include "sched/residency/promises.h"

#include <algorithm>

#include "sched/residency/swap_bounds.h"

namespace tessera::sched {

VGpuClaims ClaimsOf(const ResidencyState& state, const VGpuResidence& vgpu, bool uses_request, Nanos now) {
  VGpuClaims claims;
  std::uint64_t all = 0, whole = 0, resident = 0;
  for (const ProcessResidence& process : vgpu.processes) {
    claims.pinned += process.pinned + process.WantedPinned(now);
    all += process.All() + process.WantedMovable(now);
    whole += process.Whole() + process.WantedMovable(now);
    resident += process.Movable();
  }
  // Memory that may not go out stays, also beyond the limit.
  const std::uint64_t kept = Kept(state, vgpu, now);
  const std::uint64_t most = std::max(kept, Less(vgpu.limit.value_or(UINT64_MAX), claims.pinned));
  claims.demand = std::min(all, most);
  claims.holes = std::min(whole, most) - claims.demand;
  claims.resident = std::min(resident, most);
  const std::uint64_t promised = uses_request ? Less(vgpu.request, claims.pinned) : 0;
  claims.kept = std::min(claims.demand, kept);
  claims.floor = std::min(claims.demand, std::max(promised, kept));
  return claims;
}

std::uint64_t HasForGood(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  return std::max(vgpu.request, vgpu.Pinned() + Kept(state, vgpu, now));
}

std::uint64_t HasForNow(const ResidencyState& state, const VGpuResidence& vgpu, Nanos now) {
  return vgpu.Pinned() + ClaimsOf(state, vgpu, vgpu.Active(now), now).floor;
}

}  // namespace tessera::sched
