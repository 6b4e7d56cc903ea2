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

// "the goal speed=80% of vGPU 3", or its request.
std::string NameOf(VgpuId id, const Shares& shares, const std::optional<Goal>& goal) {
  char request[64];
  std::snprintf(request, sizeof request, "compute.request %g", shares.request_pct);
  return (goal ? "the goal " + FormatGoal(*goal) : std::string(request)) + " of vGPU " + std::to_string(id);
}

std::string Sum(double needed, double most) {
  char text[96];
  std::snprintf(text, sizeof text, "together they need %.3g of %g %% of the time", 100 * needed, 100 * most);
  return text;
}

}  // namespace

Result<void> CheckGoal(const GoalStates& vgpus, VgpuId id, const Shares& shares, const std::optional<Goal>& goal,
                       double most, Nanos now) {
  double need = shares.request_pct / 100;
  if (const SpeedGoal* speed = goal ? std::get_if<SpeedGoal>(&*goal) : nullptr) {
    if (shares.limit_pct < speed->pct)
      return Fail(EINVAL, "the goal " + FormatGoal(*goal) + " is above compute.limit", "raise the limit");
    need = std::max(need, speed->part());
  }
  if (need == 0) return {};
  double sum = need;
  const GoalState* broken = nullptr;  // of the least priority
  for (const auto& [other, vgpu] : vgpus) {
    if (other == id) continue;
    if (vgpu->InForce() || !vgpu->goal) sum += vgpu->Need(now);
    if (vgpu->InForce() && (!broken || vgpu->shares.priority >= broken->shares.priority)) broken = vgpu.get();
  }
  if (sum <= most + kRounding || (!goal && !broken)) return {};
  std::string message = NameOf(id, shares, goal) + " does not fit: " + Sum(sum, most) + " with all that is promised";
  if (broken) message += "; it would break " + NameOf(broken->id, broken->shares, broken->goal);
  return Fail(ENOSPC, message, "lower this goal or request, or another one's");
}

void ResolveConflicts(const GoalStates& vgpus, double most, Nanos now) {
  std::vector<GoalState*> order;
  for (const auto& [_, vgpu] : vgpus) order.push_back(vgpu.get());
  // Of one priority, plain requests first: their admission did not depend on anybody's load.
  std::ranges::sort(order, std::ranges::less{}, [](const GoalState* vgpu) {
    return std::tuple(vgpu->shares.priority, vgpu->goal.has_value(), vgpu->id);
  });
  double sum = 0;
  const GoalState* before = nullptr;
  for (GoalState* vgpu : order) {
    const double need = vgpu->Need(now);
    const double room = vgpu->yields_to.empty() ? most : most - kSpare;
    if (!vgpu->goal || sum + need <= room + kRounding || !before) {
      vgpu->yields_to.clear();
      sum += need;
      if (need > 0) before = vgpu;
      continue;
    }
    if (vgpu->yields_to.empty())
      vgpu->yields_to = "yields to " + NameOf(before->id, before->shares, before->goal) + ": " + Sum(sum + need, most);
    sum += vgpu->shares.request_pct / 100;
  }
}

void UpdateRoom(const GoalStates& vgpus, GoalState& vgpu) {
  double left = 100;
  for (const auto& [other, state] : vgpus) {
    if (other != vgpu.id) left -= std::max(state->given.request_pct, state->PromisedRequest());
  }
  vgpu.most_pct = std::min(vgpu.shares.limit_pct, std::max(0.0, left));
}

}  // namespace tessera::sched
