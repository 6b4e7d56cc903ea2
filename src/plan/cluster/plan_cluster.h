#pragma once

#include "base/result.h"
#include "plan/cluster/cluster_report.h"

namespace tessera::plan {

// Runs the experiment. The result is the same for the same question, except for seconds. Several seeds run in threads
// of its own, which have ended when it returns. Errors: those of fleet_csv.h; ERANGE: a number of the question is
// outside its range; EINVAL: there is no GPU, or no pod that asks for one; E2BIG: too many pods would have to come.
Result<ClusterReport> PlanCluster(const ClusterQuestion& question);

}  // namespace tessera::plan
