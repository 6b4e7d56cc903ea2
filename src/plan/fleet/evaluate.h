#pragma once

#include <vector>

#include "plan/fleet/attainment.h"
#include "plan/fleet/fleet_plan.h"

namespace tessera::plan {

// Runs the workload as it is placed, in virtual time, under the schedulers that the daemon runs: GPUs that share no
// tenant each for itself, at the same time on as many threads as there are processors. Fills in what each tenant got
// and GpuPlan::figures. EPROTO: a scheduler did what must never happen; a defect of Tessera.
Result<void> Evaluate(const Workload& workload, const PlanQuestion& question, FleetPlan& plan);

}  // namespace tessera::plan
