#pragma once

#include <string>

#include "base/result.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// ENOSPC if the requests of one GPU would add up to more than all of its time.
Result<void> CheckRequests(double others_pct, double request_pct);

// The sum of the requests of all but `id`. `vgpus`: a map from ids to what has shares().
template <typename Vgpus>
double OtherRequests(const Vgpus& vgpus, VgpuId id) {
  double sum = 0;
  for (const auto& [other, vgpu] : vgpus) {
    if (other != id) sum += vgpu.shares().request_pct;
  }
  return sum;
}

// Whether a new vGPU may be added to `vgpus`: EEXIST if the id is taken, else what Validate and CheckRequests say.
template <typename Vgpus>
Result<void> AdmitNew(const Vgpus& vgpus, VgpuId id, const Shares& shares) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (vgpus.contains(id)) return Fail(EEXIST, "vGPU " + std::to_string(id) + " exists already");
  return CheckRequests(OtherRequests(vgpus, id), shares.request_pct);
}

// Whether a vGPU of `vgpus` may change to these shares; ENOENT if it is not one of them.
template <typename Vgpus>
Result<void> AdmitChange(const Vgpus& vgpus, VgpuId id, const Shares& shares) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (!vgpus.contains(id)) return Fail(ENOENT, "vGPU " + std::to_string(id) + " does not exist");
  return CheckRequests(OtherRequests(vgpus, id), shares.request_pct);
}

}  // namespace tessera::sched
