#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sched/packing/rectangle.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// The vGPU's request as a rectangle. That of a vGPU in no space is as wide as all SMs.
inline Rectangle RectangleOf(const Shares& shares) {
  return {.sms = PartOf(shares.space.sm_pct), .time = PartOf(shares.request_pct)};
}

// Time of one GPU, in %, in which all requests are kept: what is in no space runs alone, vGPUs of one space run side by
// side (TimeToKeep).
double TimeNeeded(const std::vector<Shares>& vgpus);

// ENOSPC if the requests of one GPU, with the newcomer's, would need more than all of its time.
Result<void> CheckRequests(std::vector<Shares> others, const Shares& newcomer);

// The shares of all but `id`. `vgpus`: a map from ids to what has shares().
template <typename Vgpus>
std::vector<Shares> SharesOfOthers(const Vgpus& vgpus, VgpuId id) {
  std::vector<Shares> others;
  for (const auto& [other, vgpu] : vgpus) {
    if (other != id) others.push_back(vgpu.shares());
  }
  return others;
}

// Whether a new vGPU may be added to `vgpus`: EEXIST if the id is taken, else what Validate and CheckRequests say.
template <typename Vgpus>
Result<void> AdmitNew(const Vgpus& vgpus, VgpuId id, const Shares& shares) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (vgpus.contains(id)) return Fail(EEXIST, "vGPU " + std::to_string(id) + " exists already");
  return CheckRequests(SharesOfOthers(vgpus, id), shares);
}

// True if `to` wants no more than `from` does: the packing that holds the one holds the other.
inline bool Lowers(const Shares& from, const Shares& to) {
  return from.space.number == to.space.number && to.space.sm_pct <= from.space.sm_pct &&
         to.request_pct <= from.request_pct;
}

// Whether a vGPU of `vgpus` may change to these shares; ENOENT if it is not one of them. It may always have less,
// though a packing that is looked for anew may come out higher.
template <typename Vgpus>
Result<void> AdmitChange(const Vgpus& vgpus, VgpuId id, const Shares& shares) {
  if (auto ok = Validate(shares); !ok) return ok;
  const auto changed = vgpus.find(id);
  if (changed == vgpus.end()) return Fail(ENOENT, "vGPU " + std::to_string(id) + " does not exist");
  if (Lowers(changed->second.shares(), shares)) return {};
  return CheckRequests(SharesOfOthers(vgpus, id), shares);
}

}  // namespace tessera::sched
