#include "sched/steering/limit_keeper.h"

#include <algorithm>

namespace tessera::sched {
namespace {

// A limit that leaves less than this is used up: another look is not worth it.
constexpr Nanos kShortStep = 20 * kMicrosecond;
// Limits that end within this time end together, in one call.
constexpr Nanos kTogether = kMillisecond;

}  // namespace

// The account of a vGPU that runs is settled only when its limit may be used up: settling bills a process's grace, and
// an Idle would take that back.
void LimitKeeper::Update(SteeredVgpus& vgpus, OrderList& orders, Nanos now) const {
  bool ended = false;
  for (auto& [_, vgpu] : vgpus) {
    if (!vgpu.limited()) {
      vgpu.exhausted = false;
    } else if (vgpu.runs() && !vgpu.account.running()) {
      vgpu.account.Settle(now);
      if (!vgpu.account.Eligible()) Exhaust(vgpu);
    } else if (vgpu.runs()) {
      if (now < vgpu.check_at) continue;
      vgpu.account.Settle(now);
      if (vgpu.account.Available() > Spare(vgpu)) continue;
      Exhaust(vgpu);
      ended = true;
    } else {
      vgpu.account.Settle(now);
      if (vgpu.exhausted && now >= vgpu.back_at) Readmit(vgpu, orders, now);
      if (vgpu.active && !vgpu.exhausted && !vgpu.admitted && !vgpu.account.Eligible()) Exhaust(vgpu);
    }
  }
  if (ended) EndTogether(vgpus, now);
}

// A vGPU has to be stopped: those that would follow soon are stopped with it.
void LimitKeeper::EndTogether(SteeredVgpus& vgpus, Nanos now) const {
  for (auto& [_, vgpu] : vgpus) {
    if (!vgpu.limited() || !vgpu.runs() || vgpu.exhausted) continue;
    const double billed = vgpu.part * static_cast<double>(now - vgpu.account.settled());
    const Nanos left = vgpu.account.Available() - static_cast<Nanos>(billed) - Spare(vgpu);
    if (static_cast<double>(left) <= vgpu.part * kTogether) Exhaust(vgpu);
  }
}

void LimitKeeper::Exhaust(SteeredVgpu& vgpu) {
  vgpu.exhausted = true;
  vgpu.back_at = kNever;  // Deadline sets it, when the run has been billed
}

// The time that a run which is stopped now will still use.
Nanos LimitKeeper::Spare(const SteeredVgpu& vgpu) const {
  return static_cast<Nanos>(vgpu.part * static_cast<double>(config_.FreezeTime())) + kShortStep;
}

// Its time has come: it goes if it has saved enough for a run. A vGPU that comes back stops lower classes, so the
// driver call must be there.
void LimitKeeper::Readmit(SteeredVgpu& vgpu, OrderList& orders, Nanos now) const {
  if (!vgpu.account.Eligible()) {
    vgpu.back_at = kNever;
  } else if (vgpu.frozen && !orders.Has(now, OrderList::kCallsForGo)) {
    vgpu.back_at = orders.When(now, OrderList::kCallsForGo);
  } else {
    vgpu.exhausted = false;
    vgpu.admitted = true;
  }
}

// When a vGPU whose limit is used up, and that ran until then, may run on: when it has saved one window's worth; at one
// of a raster of moments, so that one driver call lets many go. The raster is finer for limits that forbid little, and
// each is part of the next finer.
Nanos LimitKeeper::BackAt(const SteeredVgpu& vgpu, Nanos now) const {
  const double rate = vgpu.shares().limit_pct / 100;
  const double forbidden = (1 - rate) * static_cast<double>(config_.shares.window);
  const Nanos saved = std::max({vgpu.account.EligibleAt(), vgpu.ran_until + static_cast<Nanos>(forbidden), now + 1});
  Nanos raster = config_.shares.window / 8;
  while (static_cast<double>(raster) > forbidden / 8 && raster > kShortStep) raster /= 2;
  return (saved + raster - 1) / raster * raster;
}

// The limit cannot be used up before `check_at`, if the part stays the same.
void LimitKeeper::PartChanged(SteeredVgpu& vgpu, Nanos now) const {
  if (!vgpu.limited()) return;
  const auto left = static_cast<double>(vgpu.account.Available() - Spare(vgpu));
  const Nanos step = std::max(static_cast<Nanos>(left / vgpu.part), kShortStep);
  vgpu.check_at = std::max(now, vgpu.account.settled()) + step;
}

Nanos LimitKeeper::Deadline(SteeredVgpus& vgpus, Nanos now) const {
  Nanos deadline = kNever;
  for (auto& [_, vgpu] : vgpus) {
    if (vgpu.exhausted && vgpu.back_at == kNever) vgpu.back_at = BackAt(vgpu, now);
    if (vgpu.exhausted && vgpu.active) deadline = std::min(deadline, vgpu.back_at);
    if (vgpu.limited() && vgpu.runs()) deadline = std::min(deadline, vgpu.check_at);
  }
  return deadline;
}

}  // namespace tessera::sched
