// Costs on a simulated GPU, and the way in which it is shared. The defaults are an H200's (docs/hardware-log.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "sched/steering/steering.h"
#include "sched/turns/residency.h"

namespace tessera::plan {

// How the GPU's time is divided.
enum class TimeBy {
  kTokens,    // the token scheduler: one vGPU at a time, by gates
  kSteering,  // slices and freezes
  kNobody,    // all run at once, each as fast as alone: for questions of memory only
};

struct TokenCosts {
  Nanos hand_over = 300 * kMicrosecond;   // from a grant to the first work, if another vGPU ran last
  Nanos idle_grace = 200 * kMicrosecond;  // without work for so long, a program says that it is idle
  Nanos lateness = 100 * kMicrosecond;    // of the daemon's timer, at most
};

struct SteeringCosts {
  Nanos switch_cost = 140 * kMicrosecond;  // between two vGPUs; no work runs then
  bool switch_in_slice = false;            // a switch takes its time off the slice that follows it
  Nanos freeze = 450 * kMicrosecond;       // a driver call each; one carries SteeringConfig::vgpus_per_call vGPUs
  Nanos thaw = 260 * kMicrosecond;
  Nanos set_slice = 300 * kMicrosecond;
  Nanos message = 50 * kMicrosecond;   // from a program to the daemon, at most
  Nanos lateness = 50 * kMicrosecond;  // of the daemon's timer, at most
};

// The way to host memory: one batch at a time in each direction, both directions at once.
struct MoveCosts {
  double out_bytes_per_second = 50e9;
  double in_bytes_per_second = 50e9;
  std::uint64_t batch = 256ull << 20;      // moved without a break
  std::uint64_t chunk = 64ull << 20;       // memory is moved in whole chunks
  std::uint64_t host_memory = 4ull << 40;  // bytes that may lie there
  Nanos keeps_freed = 100 * kMillisecond;  // a program keeps the room of what it frees so long, or until it is to give
                                           // memory up
  std::uint64_t context = 0;               // bytes that each program pins before it allocates
  Nanos migration = kSecond;  // a program that goes to another GPU stands still, besides its memory's moves

  // Each way, while memory moves both ways.
  double BytesPerSecond() const { return std::min(out_bytes_per_second, in_bytes_per_second); }
};

struct GpuSpec {
  std::uint64_t memory = 0;  // bytes; 0: as much as all need, so that nothing is ever moved
  TimeBy time_by = TimeBy::kSteering;

  TokenCosts token_costs;
  SteeringCosts steering_costs;
  MoveCosts moves;

  sched::Config tokens;
  sched::SteeringConfig steering;
  sched::ResidencyConfig residency;
};

}  // namespace tessera::plan
