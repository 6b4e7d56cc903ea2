#include "sched/shares/admission.h"

#include <cstdio>

namespace tessera::sched {

Result<void> CheckRequests(double others_pct, double request_pct) {
  constexpr double kRounding = 1e-6;
  if (others_pct + request_pct <= 100 + kRounding) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "compute.request %g does not fit: %g of 100 are promised to other vGPUs, %g too many", request_pct,
                others_pct, others_pct + request_pct - 100);
  return Fail(ENOSPC, text, "lower this request or another one's");
}

}  // namespace tessera::sched
