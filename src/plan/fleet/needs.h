// What tenants need of a GPU, so that they can be packed.
#pragma once

#include <string>
#include <vector>

#include "plan/gpus/gpu_model.h"
#include "plan/workload/tenant.h"
#include "sched/fleet/fleet_tenant.h"

namespace tessera::plan {

// How tenants are packed and share their GPUs. All but kTessera are what one would do without it.
enum class PlanPolicy {
  kTessera,    // time, SMs and memory as Tessera shares them
  kExclusive,  // a GPU for each
  kMemory,     // as many on a GPU as have room in its memory at any time
  kTime,       // the same, and all get the part of its time that they need
  kFgd,        // the same, by parts that are asked for once and for all, with the least fragmentation
};

// A speed counts as kept from so much below it: what switches take of a GPU whose time is promised as a whole.
inline constexpr double kSpeedTolerance = 0.01;

struct NeedOptions {
  PlanPolicy policy = PlanPolicy::kTessera;
  // Part by which more is given than was promised, [0, 1]: what a measurement of a speed is off.
  double margin = 0;
};

// Kernels of the tenant against their speed alone on all SMs, on this part of them (0, 1], beside others of a space or
// alone.
double SpeedOn(const Tenant& tenant, const GpuModel& gpu, double sms, bool in_space);
// GPU time of a burst there.
Nanos ServiceOn(const Tenant& tenant, const GpuModel& gpu, double sms, bool in_space);
// Bursts a second, alone in a closed loop on all SMs.
double BurstsAlone(const Tenant& tenant);

// The least part of a GPU's time, [0, 1], in which bursts of this length, `per_second` of them on average and at
// random, keep the goal; 1 if none does. Estimated as for one server with a fixed time of service (M/D/1), which has
// the GPU for that part of the time; a simulation tells more.
double TimeForLatency(const sched::LatencyGoal& goal, Nanos service, double per_second);

// Why the tenant's latency goal is missed even where it has a GPU to itself, with the figures, for people; empty if it
// may be kept there, or is none. What bursts wait for one another is estimated, as for TimeForLatency.
std::string WhyOutOfReach(const Tenant& tenant, const GpuModel& gpu);

// The tenants for packing, in their order. `workload` outlives nothing of it. Memory is that of one GPU of the tenant.
std::vector<sched::FleetTenant> NeedsOf(const Workload& workload, const GpuModel& gpu, const NeedOptions& options);
// The GPU for packing.
sched::FleetGpu FleetGpuOf(const Workload& workload, const GpuModel& gpu, PlanPolicy policy);

}  // namespace tessera::plan
