#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

struct SteeringConfig {
  Config shares;                           // window and min_slice; drain_timeout has no meaning here
  Nanos mean_slice = 20 * kMillisecond;    // of those that compete
  Nanos switch_cost = 200 * kMicrosecond;  // before each slice (docs/hardware-log.md)
  Nanos least_slice = kMillisecond;
  Nanos most_slice = kSecond;
  Nanos slice_interval = 100 * kMillisecond;  // a vGPU's slice changes no more often, but for an operator's Update
  Nanos least_grace = kMillisecond;
  Nanos most_grace = 50 * kMillisecond;
  Nanos cycle_cost = kMillisecond;             // of a thaw and the freeze that ends it
  Nanos patience = 0;                          // of vGPUs that state none: Shares::patience. 0: classes are strict
  Nanos least_soft_slice = 50 * kMicrosecond;  // in the gaps of a higher class that gives way
  double min_share_pct = 0;          // priority.min_share: of the time, for classes that higher ones keep from running
  bool fixed_slices = false;         // slice = 524288 us >> priority for all, and only a limit stops a vGPU
  double calls_per_second = 100;     // to the driver, at most; what cannot wait may exceed it for a moment
  std::uint32_t vgpus_per_call = 8;  // that one call freezes or thaws, of those in one list: 64 channels, 8 a context

  Nanos FreezeTime() const { return cycle_cost / 2; }
  Nanos ThawTime() const { return cycle_cost / 4; }
};

}  // namespace tessera::sched
