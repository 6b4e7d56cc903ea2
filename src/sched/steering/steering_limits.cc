// Limits: who is stopped for having used its own up, and when it goes again.
#include <algorithm>

#include "sched/steering/steering.h"

namespace tessera::sched {
namespace {

// What a limit leaves below this is not worth another look.
constexpr Nanos kShortStep = 20 * kMicrosecond;
// Limits that end within this time end together, in one call.
constexpr Nanos kTogether = kMillisecond;

}  // namespace

// Whose limit is used up, and whose no longer is. The books of who runs are settled only when its end may have come:
// settling bills a process's grace, which an Idle would take back.
void Steering::UpdateLimits() {
  bool ended = false;
  for (auto& [_, tenant] : tenants_) {
    if (!tenant.limited()) {
      tenant.exhausted = false;
    } else if (tenant.runs() && !tenant.account.running()) {
      tenant.account.Settle(now_);
      if (!tenant.account.Eligible()) Exhaust(tenant);
    } else if (tenant.runs()) {
      if (now_ < tenant.check_at) continue;
      tenant.account.Settle(now_);
      if (tenant.account.Available() > Spare(tenant)) continue;
      Exhaust(tenant);
      ended = true;
    } else {
      tenant.account.Settle(now_);
      if (tenant.exhausted && now_ >= tenant.back_at) Readmit(tenant);
      if (tenant.active && !tenant.exhausted && !tenant.admitted && !tenant.account.Eligible()) Exhaust(tenant);
    }
  }
  if (!ended) return;
  for (auto& [_, tenant] : tenants_) {
    if (!tenant.limited() || !tenant.runs() || tenant.exhausted) continue;
    const double billed = tenant.part * static_cast<double>(now_ - tenant.account.settled());
    const Nanos left = tenant.account.Available() - static_cast<Nanos>(billed) - Spare(tenant);
    if (static_cast<double>(left) <= tenant.part * kTogether) Exhaust(tenant);
  }
}

void Steering::Exhaust(Tenant& tenant) {
  tenant.exhausted = true;
  tenant.back_at = kNever;  // UpdateDeadline knows it, when its run has been billed
}

// What a run that is stopped now will still use.
Nanos Steering::Spare(const Tenant& tenant) const {
  return static_cast<Nanos>(tenant.part * static_cast<double>(FreezeTime())) + kShortStep;
}

// Its window begins, and it has saved enough for a run. A vGPU that comes back stops lower classes: the call must be
// there.
void Steering::Readmit(Tenant& tenant) {
  if (!tenant.account.Eligible()) {
    tenant.back_at = kNever;
  } else if (tenant.frozen && !budget_.Has(now_, CallsFor(orders_) + kCallsForGo)) {
    tenant.back_at = budget_.When(now_, kCallsForGo);
  } else {
    tenant.exhausted = false;
    tenant.admitted = true;
  }
}

// When a vGPU whose limit is used up, and that ran until then, may run on: when it has saved one window's worth; at one
// of a raster of moments, so that one driver call lets many go. The raster is finer for limits that forbid little, and
// each is part of the next finer.
Nanos Steering::BackAt(const Tenant& tenant) const {
  const double rate = tenant.shares().limit_pct / 100;
  const double forbidden = (1 - rate) * static_cast<double>(config_.shares.window);
  const Nanos saved =
      std::max({tenant.account.EligibleAt(), tenant.ran_until + static_cast<Nanos>(forbidden), now_ + 1});
  Nanos raster = config_.shares.window / 8;
  while (static_cast<double>(raster) > forbidden / 8 && raster > kShortStep) raster /= 2;
  return (saved + raster - 1) / raster * raster;
}

// When the limit of a vGPU that runs may be used up: not before, if its part stays the same.
Nanos Steering::CheckAt(const Tenant& tenant) const {
  const auto left = static_cast<double>(tenant.account.Available() - Spare(tenant));
  const Nanos step = std::max(static_cast<Nanos>(left / tenant.part), kShortStep);
  return std::max(now_, tenant.account.settled()) + step;
}

}  // namespace tessera::sched
