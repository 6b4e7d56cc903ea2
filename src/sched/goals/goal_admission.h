#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/result.h"
#include "sched/goals/goal_state.h"

namespace tessera::sched {

using GoalStates = std::map<VgpuId, std::unique_ptr<GoalState>>;

// Whether the vGPU may have these shares and this goal. `most`: the part of the GPU's time that may be promised, (0,
// 1]. ENOSPC: with all that is promised to the others they need more, and a goal is among them; a change that needs no
// more than before always fits. EINVAL: the vGPU's own limit is below its goal.
Result<void> CheckGoal(const GoalStates& vgpus, VgpuId id, const Shares& shares, const std::optional<Goal>& goal,
                       const Backing& backing, double most, Nanos now);

// Decides which goals are in force: as many as fit into `most`, in the order of priorities. Sets GoalState::yields_to
// of the others.
void ResolveConflicts(const GoalStates& vgpus, double most, Nanos now);

// Sets GoalState::most_pct of the vGPU: the request that the others' terms leave it of `most` of the GPU's time. Where
// requests leave nothing, whoever has none makes all slices long, and programs with pauses lose the rest of theirs.
void UpdateRoom(const GoalStates& vgpus, GoalState& vgpu, double most);

}  // namespace tessera::sched
