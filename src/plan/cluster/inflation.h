#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/cluster/cluster_report.h"
#include "plan/cluster/fleet_csv.h"
#include "sched/cluster/fleet_value.h"
#include "sched/cluster/fragmentation.h"

namespace tessera::plan {

// One experiment, whatever the order of its pods. Const: several threads can run it.
class Inflation {
 public:
  // Both live longer.
  Inflation(const ClusterQuestion& question, const FleetNodes& nodes, const std::vector<sched::Demand>& pods);

  // E2BIG: too many pods would have to come.
  Result<ClusterRun> Run(std::uint64_t seed) const;
  double bound_pct() const { return bound_pct_; }

 private:
  const ClusterQuestion& question_;
  const FleetNodes& nodes_;
  const std::vector<sched::Demand>& pods_;
  sched::Fragmentation fragmentation_;
  sched::FleetValue value_;
  double bound_pct_ = 0;
};

}  // namespace tessera::plan
