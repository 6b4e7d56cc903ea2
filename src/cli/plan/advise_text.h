#pragma once

#include <string>
#include <vector>

#include "cli/plan/metered_fleet.h"
#include "client/json.h"

namespace tessera::cli {

// The commands that apply the advice, one for each vGPU that changes: `tessera vgpu set`, on its node, or for a pod's
// `kubectl annotate`. What no command can change is a comment that begins with '#'.
std::vector<std::string> AdviceCommands(const SeenFleet& seen, const std::vector<sched::Advice>& advice);

// All of it, for people, and for programs.
std::string AdviceText(const SeenFleet& seen, const std::vector<sched::Advice>& advice);
client::Json AdviceJson(const SeenFleet& seen, const std::vector<sched::Advice>& advice);

}  // namespace tessera::cli
