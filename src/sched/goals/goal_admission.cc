#include "sched/goals/goal_admission.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera::sched {
namespace {

constexpr double kRounding = 1e-6;
constexpr double kSpare = 0.05;  // a goal that yielded comes back when so much more is free

// "the goal speed=80% of vGPU serve", or its request.
std::string NameOf(VgpuId id, const Shares& shares, const std::optional<Goal>& goal, const Backing& backing) {
  char request[64];
  std::snprintf(request, sizeof request, "compute.request %g", shares.request_pct);
  return (goal ? "the goal " + FormatGoal(*goal) : std::string(request)) + " of vGPU " +
         (backing.name.empty() ? std::to_string(id) : backing.name);
}

// As `reader` may read it.
std::string NameFor(const Backing& reader, const GoalState& vgpu) {
  if (reader.owner != 0 && reader.owner != vgpu.backing.owner)
    return std::string(vgpu.goal ? "the goal" : "compute.request") + " of another user's vGPU";
  return NameOf(vgpu.id, vgpu.shares, vgpu.goal, vgpu.backing);
}

// The promise that does not depend on the load, in % of the GPU's time.
double PromiseOf(const Shares& shares, const std::optional<Goal>& goal, const Backing& backing) {
  const SpeedGoal* speed = goal ? std::get_if<SpeedGoal>(&*goal) : nullptr;
  return speed && backing.means != Means::kNone ? std::max(shares.request_pct, speed->pct) : shares.request_pct;
}

std::string Sum(double needed, double most) {
  char text[96];
  std::snprintf(text, sizeof text, "%.3g of %g %% of the time", 100 * needed, 100 * most);
  return text;
}

}  // namespace

Result<void> CheckGoal(const GoalStates& vgpus, VgpuId id, const Shares& shares, const std::optional<Goal>& goal,
                       const Backing& backing, double most, Nanos now) {
  const SpeedGoal* speed = goal ? std::get_if<SpeedGoal>(&*goal) : nullptr;
  if (speed && shares.limit_pct < speed->pct)
    return Fail(EINVAL, "the goal " + FormatGoal(*speed) + " is above compute.limit", "raise the limit");
  const double need = PromiseOf(shares, goal, backing) / 100;
  if (need == 0) return {};
  if (const auto found = vgpus.find(id); found != vgpus.end() && (!goal || goal == found->second->goal)) {
    const GoalState& before = *found->second;
    if (100 * need <= PromiseOf(before.shares, before.goal, before.backing) + kRounding) return {};
  }
  double sum = need;
  const GoalState* broken = nullptr;  // of the least priority
  for (const auto& [other, vgpu] : vgpus) {
    if (other == id) continue;
    sum += vgpu->InForce() || !vgpu->goal ? vgpu->Need(now) : vgpu->shares.request_pct / 100;
    if (vgpu->InForce() && (!broken || vgpu->shares.priority >= broken->shares.priority)) broken = vgpu.get();
  }
  if (sum <= most + kRounding || (!goal && !broken)) return {};
  std::string message =
      NameOf(id, shares, goal, backing) + " does not fit: all promises together would need " + Sum(sum, most);
  if (broken) message += "; it would break " + NameFor(backing, *broken);
  return Fail(ENOSPC, message, "lower this goal or request, or another one's");
}

void ResolveConflicts(const GoalStates& vgpus, double most, Nanos now) {
  std::vector<GoalState*> order;
  for (const auto& [_, vgpu] : vgpus) order.push_back(vgpu.get());
  // Of one priority, plain requests first: their admission did not depend on anybody's load.
  std::ranges::sort(order, std::ranges::less{}, [](const GoalState* vgpu) {
    return std::tuple(vgpu->shares.priority, vgpu->Promised(), vgpu->id);
  });
  double sum = 0;
  const GoalState* before = nullptr;
  for (GoalState* vgpu : order) {
    const double need = vgpu->Need(now);
    const double room = vgpu->yields_to.empty() ? most : most - kSpare;
    if (!vgpu->Promised() || sum + need <= room + kRounding || !before) {
      vgpu->yields_to.clear();
      sum += need;
      if (need > 0) before = vgpu;
      continue;
    }
    if (vgpu->yields_to.empty())
      vgpu->yields_to =
          "yields to " + NameFor(vgpu->backing, *before) + ": together they need " + Sum(sum + need, most);
    sum += vgpu->shares.request_pct / 100;
  }
}

void UpdateRoom(const GoalStates& vgpus, GoalState& vgpu, double most) {
  double left = 100 * most;
  for (const auto& [other, state] : vgpus) {
    if (other != vgpu.id) left -= std::max(state->given.request_pct, state->PromisedRequest());
  }
  const double own = vgpu.backing.most_request_pct;
  vgpu.most_pct = std::min({vgpu.shares.limit_pct, std::max(0.0, left), std::max(own, vgpu.PromisedRequest())});
}

}  // namespace tessera::sched
