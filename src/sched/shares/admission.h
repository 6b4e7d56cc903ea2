#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Time of one GPU, in %, in which all requests can be served: what is in no space runs alone, vGPUs of one space run
// side by side. A request in a space is a rectangle of time and SMs; the rectangles are put on shelves, the longest
// first, each on the first shelf that has SMs left (first fit by decreasing height). Never less than what is needed;
// at most 1.7 times the best packing and one longest request (Coffman, Garey, Johnson and Tarjan 1980).
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

// Whether a vGPU of `vgpus` may change to these shares; ENOENT if it is not one of them.
template <typename Vgpus>
Result<void> AdmitChange(const Vgpus& vgpus, VgpuId id, const Shares& shares) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (!vgpus.contains(id)) return Fail(ENOENT, "vGPU " + std::to_string(id) + " does not exist");
  return CheckRequests(SharesOfOthers(vgpus, id), shares);
}

}  // namespace tessera::sched
