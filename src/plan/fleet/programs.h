#pragma once

#include <cstdint>

#include "plan/fleet/fleet_plan.h"
#include "plan/model/workload.h"
#include "plan/workload/tenant.h"
#include "sched/shares/shares.h"

namespace tessera::plan {

// A tenant as the simulator runs it where it was placed. What was seen to run comes back as bursts of `burst`.
Program ProgramOf(const Tenant& tenant, const Workload& workload, const GpuModel& gpu,
                  const sched::Placement::Seat& seat, Nanos burst);
// The same, but that the program begins so long before its record does. What it has then it takes at once.
Program BeginsBefore(Program program, Nanos record);
// After so long a program that came to the GPU has its first memory, even where others have to make room for it.
Nanos TimeToArrive(const Tenant& tenant, const GpuModel& gpu);
// The shares of its vGPU. `space`: its number on the GPU; 0: in none. `steered`: a goal of latency has its own
// controller there; else it is promised the time that it was packed with.
sched::Shares SharesOf(const Tenant& tenant, const sched::Placement::Seat& seat, std::uint32_t space, bool steered);
// Bursts that the tenant is due in this time; 0: as many as it can.
double BurstsDue(const Tenant& tenant, const Workload& workload, Nanos time, Nanos burst);

}  // namespace tessera::plan
