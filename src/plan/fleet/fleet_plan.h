// A plan: which GPUs a workload needs, who lies on which, and what each gets there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plan/fleet/attainment.h"
#include "plan/fleet/needs.h"
#include "plan/gpus/gpu_model.h"
#include "plan/model/figures.h"
#include "plan/workload/tenant.h"
#include "sched/fleet/fleet_tenant.h"
#include "sched/fleet/gpu_load.h"

namespace tessera::plan {

struct PlanQuestion {
  GpuModel gpu;
  PlanPolicy policy = PlanPolicy::kTessera;
  std::size_t gpus = 0;  // so many, and who fits nowhere is refused; 0: as few as possible
  // GPUs of a node, between which programs move while they run, as with rebalance.load; 1: they stay where they are.
  std::size_t gpus_per_node = 1;
  // By what record they are placed on nodes, which knows nothing of the one that is planned; nullopt: by that one.
  // Programs that are not in it count as the mean of those that are.
  std::optional<Workload> place_by;
  double margin = 0;  // NeedOptions
  std::uint64_t seed = 1;
  Nanos search = 10 * kSecond;    // for better packing, of real time
  Nanos simulate = 60 * kSecond;  // of a workload that is no record
  // GPU time of a burst of those of whom only the duty is known.
  Nanos burst = 100 * kMillisecond;
  bool simulates = true;
};

// What is said of one GPU.
struct GpuPlan {
  std::vector<std::size_t> tenants;
  double memory = 0;    // that all allocate, the most of what was seen; of the GPU's
  double promised = 0;  // memory that must be on it, of the GPU's
  double time = 0;      // in which all promises are kept, of what may be promised
  double over = 0;      // part of the intervals in which more was used than there is
  std::string binds;    // of what it has the least left; empty: nothing is asked of it
  GpuFigures figures;   // of the simulation
};

struct FleetPlan {
  sched::Placement placement;
  std::vector<GpuPlan> gpus;
  std::vector<Attainment> attained;  // of the tenants, in their order
  std::size_t first_fit = 0;         // GPUs before the search
  bool overfull = false;             // --gpus-per-node: more is used than `gpus` have, in too many intervals
  std::size_t moves = 0;             // of programs to other GPUs, as packed;
  std::size_t moves_simulated = 0;   // and in the simulation
  std::size_t refused = 0;           // tenants
  std::size_t crowded = 0;           // tenants that have a place only because `gpus` are no more
  double over = 0;                   // of all GPUs' intervals, those in which more was used than there is
  double pods_over = 0;              // of all tenants' intervals, those on such a GPU at that time
  Nanos simulated = 0;
  std::uint64_t events = 0;
  Nanos simulating = 0;  // processor time, of all threads
};

// ENOSPC: a tenant that fits on no GPU of this type, even alone (unless `gpus` says that some may be refused); the
// error names it and why. EINVAL: no tenant. Uses all processors; blocks.
Result<FleetPlan> PlanFleet(const Workload& workload, const PlanQuestion& question);

// GPUs that the workload needs by this policy, by first fit: to compare with. What fits nowhere is left out.
std::size_t GpusBy(const Workload& workload, const GpuModel& gpu, PlanPolicy policy);

}  // namespace tessera::plan
