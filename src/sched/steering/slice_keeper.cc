#include "sched/steering/slice_keeper.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "sched/steering/slices.h"

namespace tessera::sched {
namespace {

constexpr double kSliceTolerance = 0.02;
// A slice that is wrong by less than that, but by more than this, changes after it was wrong for so many intervals.
constexpr double kFineTolerance = 0.002;
constexpr Nanos kFineIntervals = 10;
// The mean slice may be this many times what is configured, if others' slices need not change for that.
constexpr double kLeastScale = 0.5;
constexpr double kMostScale = 4;
constexpr double kTurnsInAWindow = 6;
// A vGPU that is alone in its class and gives way has this many times the mean slice. So bursts of up to 100 ms are not
// cut, and of longer ones at most 1.3 % goes to lower classes (patience of 1 ms and two switches, each 100 ms).
constexpr Nanos kAloneAbove = 5;

}  // namespace

// The slices that are due, scaled to those in force: only ratios matter, so that vGPUs which have slices keep them if
// they fit.
std::vector<Nanos> SliceKeeper::Usual(const Running& running) const {
  std::vector<Shares> shares;
  for (const SteeredVgpu* vgpu : running) shares.push_back(vgpu->shares());
  std::vector<double> due = DueParts(shares);
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
  const SliceBounds bounds = {mean, config_.least_slice, config_.most_slice};
  std::vector<Nanos> slices = SlicesFor(due, bounds);
  if (slices.size() > 1) {
    const auto round = static_cast<double>(std::accumulate(slices.begin(), slices.end(), Nanos{0}));
    const double switches = static_cast<double>(config_.switch_cost) * static_cast<double>(slices.size());
    due = DueParts(shares, switches / (round + switches));
    slices = SlicesFor(due, bounds);
  }

  double ordered = 0;
  double wanted = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (running[i]->slice == 0) continue;
    ordered += static_cast<double>(running[i]->slice);
    wanted += static_cast<double>(slices[i]);
  }
  double scale = wanted > 0 ? ordered / wanted : 1;
  const auto shortest = static_cast<double>(std::ranges::min(slices));
  if (scale < kLeastScale || scale > most_scale || scale * shortest < static_cast<double>(config_.least_slice))
    scale = 1;
  for (Nanos& slice : slices) {
    slice = std::clamp(static_cast<Nanos>(scale * static_cast<double>(slice)), config_.least_slice, config_.most_slice);
  }
  return slices;
}

// Those that run in the gaps of higher classes have their short slices; the others divide the time among themselves, as
// if there were no lower class.
std::vector<Nanos> SliceKeeper::Wanted(const Running& running) const {
  Running usual;
  std::ranges::copy_if(running, std::back_inserter(usual), [](const auto* vgpu) { return vgpu->soft_slice == 0; });
  if (usual.size() == running.size()) return Usual(running);
  std::vector<Nanos> slices;
  if (usual.size() == 1) slices = {std::min(kAloneAbove * config_.mean_slice, config_.most_slice)};
  if (usual.size() > 1) slices = Usual(usual);
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i]->soft_slice > 0)
      slices.insert(slices.begin() + static_cast<std::ptrdiff_t>(i), running[i]->soft_slice);
  }
  return slices;
}

// A promise to higher classes depends on it, so it waits for no budget; each follows an order that did.
void SliceKeeper::Shorten(SteeredVgpus& vgpus, OrderList& orders, Nanos now) {
  for (auto& [_, vgpu] : vgpus) {
    if (vgpu.SliceTooLong()) Give(vgpu, vgpu.soft_slice, orders, now);
  }
}

void SliceKeeper::Update(const Running& running, OrderList& orders, Nanos now) {
  const bool at_once = std::exchange(at_once_, false);
  if (config_.fixed_slices || running.size() < 2) return;
  const std::vector<Nanos> slices = Wanted(running);
  Nanos next = kNever;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    SteeredVgpu& vgpu = *running[i];
    const double change = static_cast<double>(std::abs(slices[i] - vgpu.slice));
    if (change <= kFineTolerance * static_cast<double>(vgpu.slice)) {
      vgpu.wrong_since = kNever;
      continue;
    }
    const bool fine = change <= kSliceTolerance * static_cast<double>(vgpu.slice);
    const Nanos interval = config_.slice_interval * (fine ? kFineIntervals : 1);
    // Since it was first seen to be wrong, also if it was stopped meanwhile: one at its limit seldom runs for long.
    vgpu.wrong_since = std::min(vgpu.wrong_since, now);
    const Nanos may_at = std::max(vgpu.wrong_since, vgpu.sliced_at) + interval;
    if (vgpu.slice == 0 || at_once || (may_at <= now && orders.Has(now, OrderList::kCallsForSlice))) {
      Give(vgpu, slices[i], orders, now);
    } else {
      next = std::min(next, may_at > now ? may_at : orders.When(now, OrderList::kCallsForSlice));
    }
  }
  due_ = next;
}

void SliceKeeper::Give(SteeredVgpu& vgpu, Nanos slice, OrderList& orders, Nanos now) {
  vgpu.slice = slice;
  vgpu.sliced_at = now;
  vgpu.wrong_since = kNever;
  orders.Push({Order::Kind::kSlice, vgpu.id, slice});
}

void SliceKeeper::Fix(SteeredVgpu& vgpu, OrderList& orders, Nanos now) const {
  const Nanos slice = (Nanos{524'288} >> vgpu.shares().priority) * kMicrosecond;
  if (slice != vgpu.slice) Give(vgpu, slice, orders, now);
}

// By the slices that are in force, not by those that are due. In the gaps of a higher class others have the whole GPU,
// and how long the gaps are is not known: a limit must hold even if they never end.
void SliceKeeper::UpdateParts(const Running& running, const LimitKeeper& limits, Nanos now) const {
  double sum = 0;
  double in_gaps = 0;
  for (const SteeredVgpu* vgpu : running) {
    sum += static_cast<double>(vgpu->slice);
    if (vgpu->soft_slice > 0) in_gaps += static_cast<double>(vgpu->slice);
  }
  for (SteeredVgpu* vgpu : running) {
    const double all = vgpu->soft_slice > 0 ? in_gaps : sum;
    const double part = running.size() < 2 || all <= 0 ? 1 : static_cast<double>(vgpu->slice) / all;
    if (part == vgpu->part && vgpu->check_at > now) continue;
    vgpu->part = part;
    vgpu->account.SetPart(now, part);
    limits.PartChanged(*vgpu, now);
  }
}

}  // namespace tessera::sched
