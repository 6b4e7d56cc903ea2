#include "server/spaces/own_sms.h"

#include <fmt/format.h>

#include "sched/packing/free_range.h"

namespace tessera::server {

Result<void> PlaceSms(VGpu& vgpu, const std::vector<VGpu*>& all) {
  sched::SpacePlace& place = vgpu.spec.compute.space;
  std::vector<sched::SmRange> taken;
  for (const VGpu* other : all) {
    const sched::SpacePlace& its = other->spec.compute.space;
    if (other == &vgpu || other->gpu != vgpu.gpu || its.number != place.number) continue;
    if (its.reserved != place.reserved)
      return Fail(EINVAL,
                  fmt::format("vGPU {} of space {} {}", other->spec.name, vgpu.spec.space,
                              its.reserved ? "has SMs of its own" : "has no SMs of its own"),
                  "all vGPUs of a space have, or none has: choose another space, or the same for sm_reserved");
    taken.push_back({sched::PartOf(its.from_pct), sched::PartOf(its.sm_pct)});
  }
  if (!place.reserved) return {};
  const sched::Part width = sched::PartOf(place.sm_pct);
  // An earlier daemon gave it these, and its programs may run in them.
  if (sched::IsFree(taken, {sched::PartOf(place.from_pct), width})) return {};
  if (const auto from = sched::FirstFree(taken, width)) {
    place.from_pct = sched::PctOf(*from);
    return {};
  }
  return Fail(ENOSPC,
              fmt::format("sm_limit of {:g} %: space {} has {:g} % of the SMs in one piece that are nobody's",
                          place.sm_pct, vgpu.spec.space, sched::PctOf(sched::WidestFree(taken))),
              "lower it, or remove another vGPU of the space");
}

Result<void> KeepsSms(const sched::SpacePlace& before, const sched::SpacePlace& after) {
  if (before.reserved == after.reserved && (!before.reserved || before.sm_pct == after.sm_pct)) return {};
  return Fail(EINVAL, "SMs that are a vGPU's own cannot be changed", "make a new vGPU");
}

}  // namespace tessera::server
