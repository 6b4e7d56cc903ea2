#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"
#include "server/model/gate_record.h"

namespace tessera::server {

// What a steering server knows of a vGPU's use of its GPU.
struct SteeringState {
  static constexpr Nanos kFirstGrace = 5 * kMillisecond;
  // The driver's slice for a group that was given none (NVA06C_CTRL_CMD_GET_TIMESLICE: 2,048 us).
  static constexpr Nanos kDriverSlice = 2 * kMillisecond;
  // Between a thaw and the freeze by which a limit is held, each process of a vGPU should have as many turns.
  static constexpr Nanos kTurnsInAQuota = 2;

  sched::VgpuId vgpu;
  bool stopped = false;
  Nanos stopped_at = 0;  // 0: since then it went on
  bool active = false;   // as the scheduler was told
  Nanos slice = 0;       // of all its processes together; 0: it had no competitor yet
  Nanos quota = 0;       // what its limit lets it run in a window
  Nanos grace = kFirstGrace;
  std::vector<GateRecord*> gates;

  bool Active() const {
    return std::ranges::any_of(gates, [](const GateRecord* gate) {
      return !gate->held && gate->state != GateRecord::State::kParked && (gate->stop.Freezes() || gate->stop.believed);
    });
  }
  bool Has(pid_t pid) const { return std::ranges::count(gates, pid, &GateRecord::pid) != 0; }
  std::ptrdiff_t Running() const {
    return std::ranges::count_if(gates,
                                 [](const GateRecord* gate) { return gate->state == GateRecord::State::kRunning; });
  }
  // The slice of each process; 0: as it is. Several that compete only with one another would lose a tenth of the time
  // by changes if they kept the driver's slices (docs/hardware-log.md).
  Nanos Part(Nanos mean_slice) const {
    const std::ptrdiff_t running = std::max<std::ptrdiff_t>(1, Running());
    if (slice != 0) return slice / running;
    const Nanos part = std::min(mean_slice, quota / kTurnsInAQuota) / running;
    return running > 1 && part > kDriverSlice ? part : 0;
  }
};

}  // namespace tessera::server
