#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sched/cluster/fleet_policy.h"

namespace tessera::plan {

// What PlanCluster is asked: how much of a cluster's GPUs a policy can give to pods that arrive in random order and
// never leave. This is the experiment of FGD (USENIX ATC 2023); docs/plan-cluster.md describes it.
struct ClusterQuestion {
  std::string nodes, pods;  // files, see fleet_csv.h
  sched::FleetPolicy policy = sched::FleetPolicy::kTessera;
  std::uint32_t seeds = 1;    // runs, each with another order: by the seeds 1, 2, ... [1, 1000]
  double arrive_pct = 130;    // until the pods asked for so much of the GPUs, [1, 1000]
  double most_moves_pct = 0;  // moves of running pods, in percent of those placed so far, [0, 100]
  std::uint32_t threads = 0;  // at most; 0: one for each processor
};

// What the GPUs do when the pods that came so far asked for so much. All in percent of the cluster's GPUs. A run has
// the mean over all arrivals at which the first figure rounds to a whole percent; the published figures are such means.
struct ClusterPoint {
  double arrived_pct = 0;     // asked for
  double allocated_pct = 0;   // given to pods
  double fragmented_pct = 0;  // left, but of no use for the expected pod: FGD's measure
};

struct ClusterRun {
  std::uint64_t seed = 0;
  std::vector<ClusterPoint> points;                  // at 5, 10, ... %
  std::size_t arrived = 0, placed = 0, refused = 0;  // pods
  std::size_t moved = 0;                             // moves of pods
  double seconds = 0;
};

struct ClusterReport {
  std::size_t nodes = 0;
  std::int64_t gpus = 0;
  std::size_t pods = 0;              // in the list
  double bound_pct = 0;              // more cannot be allocated before a pod is refused, if pods come as in the list
  std::vector<ClusterRun> runs;      // by seed
  std::vector<ClusterPoint> points;  // means of the runs'
  double seconds = 0;
};

}  // namespace tessera::plan
