#include "sched/shares/admission.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

namespace tessera::sched {
namespace {

constexpr double kRounding = 1e-6;  // %

struct Shelf {
  double time_pct;
  double free_sm_pct;
};

// `members`: vGPUs of one space, the longest request first.
double TimeOfSpace(const std::vector<Shares>& members) {
  std::vector<Shelf> shelves;
  double sum = 0;
  for (const Shares& member : members) {
    const double sms = member.space.sm_pct;
    const auto shelf = std::ranges::find_if(shelves, [&](const Shelf& s) { return s.free_sm_pct >= sms - kRounding; });
    if (shelf != shelves.end()) {
      shelf->free_sm_pct -= sms;
    } else {
      shelves.push_back({member.request_pct, 100 - sms});
      sum += member.request_pct;
    }
  }
  return sum;
}

}  // namespace

double TimeNeeded(const std::vector<Shares>& vgpus) {
  double sum = 0;
  std::map<std::uint32_t, std::vector<Shares>> spaces;
  for (const Shares& vgpu : vgpus) {
    if (vgpu.space.number == 0) {
      sum += vgpu.request_pct;
    } else if (vgpu.request_pct > 0) {
      spaces[vgpu.space.number].push_back(vgpu);
    }
  }
  for (auto& [_, members] : spaces) {
    std::ranges::sort(members, std::ranges::greater{},
                      [](const Shares& member) { return std::pair(member.request_pct, member.space.sm_pct); });
    sum += TimeOfSpace(members);
  }
  return sum;
}

Result<void> CheckRequests(std::vector<Shares> others, const Shares& newcomer) {
  const double before = TimeNeeded(others);
  others.push_back(newcomer);
  const double needed = TimeNeeded(others);
  if (needed <= 100 + kRounding || newcomer.request_pct == 0) return {};
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
