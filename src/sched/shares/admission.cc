#include "sched/shares/admission.h"

#include <cstdio>
#include <map>
#include <utility>

#include "sched/packing/strip.h"

namespace tessera::sched {

double TimeNeeded(const std::vector<Shares>& vgpus) {
  Part sum = 0;
  std::map<std::uint32_t, std::vector<Rectangle>> spaces;
  for (const Shares& vgpu : vgpus) {
    if (vgpu.space.number == 0) {
      sum += PartOf(vgpu.request_pct);
    } else {
      spaces[vgpu.space.number].push_back(RectangleOf(vgpu));
    }
  }
  for (auto& [_, rectangles] : spaces) sum += TimeToKeep(std::move(rectangles));
  return PctOf(sum);
}

Result<void> CheckRequests(std::vector<Shares> others, const Shares& newcomer) {
  const double before = TimeNeeded(others);
  others.push_back(newcomer);
  const double needed = TimeNeeded(others);
  if (needed <= 100 || newcomer.request_pct == 0) return {};
  char text[200];
  if (newcomer.space.number == 0) {
    std::snprintf(text, sizeof text,
                  "compute.request %g does not fit: %g of 100 are promised to other vGPUs, %g too many",
                  newcomer.request_pct, before, needed - 100);
  } else {
    std::snprintf(text, sizeof text,
                  "compute.request %g on %g %% of the SMs does not fit: all requests need %g of 100, %g too many; %g "
                  "without this one",
                  newcomer.request_pct, newcomer.space.sm_pct, needed, needed - 100, before);
  }
  return Fail(ENOSPC, text, "lower this request or another one's");
}

}  // namespace tessera::sched
