// The slices of those that run, and what part of the GPU's time they give.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sched/steering/slices.h"
#include "sched/steering/steering.h"

namespace tessera::sched {
namespace {

constexpr double kSliceTolerance = 0.02;
// The mean slice may be this many times what is configured, if others' slices need not change for that.
constexpr double kLeastScale = 0.5;
constexpr double kMostScale = 4;
constexpr double kTurnsInAWindow = 6;

}  // namespace

// Brings the slices to what is due. A vGPU without one gets it at once; else what is wrong must have been wrong for a
// while, so that who comes and goes causes no calls.
void Steering::UpdateSlices() {
  const bool at_once = std::exchange(slices_at_once_, false);
  if (config_.fixed_slices || running_.size() < 2) return;
  std::vector<Shares> shares;
  for (const auto& [_, tenant] : running_) shares.push_back(tenant->shares());
  const std::vector<double> due = DueParts(shares);
  // If all have limits and the sum is less than the GPU, they are stopped once a window: each must have had several
  // turns by then.
  const double sum = std::accumulate(due.begin(), due.end(), 0.0);
  Nanos mean = config_.mean_slice;
  double most_scale = kMostScale;
  if (sum < 1 - kSliceTolerance) {
    const double round = sum * static_cast<double>(config_.shares.window) / kTurnsInAWindow;
    mean = std::min(mean, static_cast<Nanos>(round / static_cast<double>(due.size())));
    most_scale = 1;
  }
  const std::vector<Nanos> slices = SlicesFor(due, {mean, config_.least_slice, config_.most_slice});

  // Only ratios matter: those that have slices keep them if they fit, and the new ones are scaled to theirs.
  double ordered = 0;
  double wanted = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (running_[i].second->slice == 0) continue;
    ordered += static_cast<double>(running_[i].second->slice);
    wanted += static_cast<double>(slices[i]);
  }
  double scale = wanted > 0 ? ordered / wanted : 1;
  const auto shortest = static_cast<double>(std::ranges::min(slices));
  if (scale < kLeastScale || scale > most_scale || scale * shortest < static_cast<double>(config_.least_slice))
    scale = 1;

  Nanos next = kNever;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto& [id, tenant] = running_[i];
    const Nanos slice =
        std::clamp(static_cast<Nanos>(scale * static_cast<double>(slices[i])), config_.least_slice, config_.most_slice);
    const double change = static_cast<double>(std::abs(slice - tenant->slice));
    if (change <= kSliceTolerance * static_cast<double>(tenant->slice)) {
      tenant->wrong_since = kNever;
      continue;
    }
    const bool now = tenant->slice == 0 || at_once;
    // Since it was first seen to be wrong, also if it was stopped meanwhile: one at its limit seldom runs for long.
    tenant->wrong_since = std::min(tenant->wrong_since, now_);
    const Nanos may_at = std::max(tenant->wrong_since, tenant->sliced_at) + config_.slice_interval;
    if (now || (may_at <= now_ && budget_.Has(now_, CallsFor(orders_) + kCallsForSlice))) {
      OrderSlice(id, *tenant, slice);
    } else {
      next = std::min(next, may_at > now_ ? may_at : budget_.When(now_, kCallsForSlice));
    }
  }
  slices_due_ = next;
}

void Steering::OrderSlice(VgpuId id, Tenant& tenant, Nanos slice) {
  tenant.slice = slice;
  tenant.sliced_at = now_;
  tenant.wrong_since = kNever;
  Push({Order::Kind::kSlice, id, slice});
}

void Steering::FixSlice(VgpuId id, Tenant& tenant) {
  const Nanos slice = (Nanos{524'288} >> tenant.shares().priority) * kMicrosecond;
  if (slice != tenant.slice) OrderSlice(id, tenant, slice);
}

// What each gets by the slices that are in force, not by those that are due.
void Steering::UpdateParts() {
  double sum = 0;
  for (const auto& [_, tenant] : running_) sum += static_cast<double>(tenant->slice);
  for (auto& [_, tenant] : running_) {
    const double part = running_.size() < 2 ? 1 : static_cast<double>(tenant->slice) / sum;
    if (part == tenant->part && tenant->check_at > now_) continue;
    tenant->part = part;
    tenant->account.SetPart(now_, part);
    if (tenant->limited()) tenant->check_at = CheckAt(*tenant);
  }
}

}  // namespace tessera::sched
