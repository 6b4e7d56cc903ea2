#pragma once

#include "base/clock.h"

namespace tessera::sched {

// Constants under which goals are kept. The times are an H200's (docs/hardware-log.md).
struct GoalsConfig {
  Nanos freeze_time = 500 * kMicrosecond;  // from an order to stop until what it stops stands still
  Nanos switch_time = 140 * kMicrosecond;  // from one vGPU to another
  Nanos message_time = 50 * kMicrosecond;  // a burst may begin so long before the daemon is told
  Nanos own_slice = 100 * kMillisecond;    // of a vGPU above the others, before they get the GPU again
  Nanos least_patience = 50 * kMicrosecond;
  Nanos most_patience = 20 * kMillisecond;
  double gain = 0.05;  // of the control of a latency: its whole range is 1 / gain violations
  // The same for requests that a program tells: they queue, so what makes one late makes several late.
  double request_gain = 0.25;
  double most_promised = 0.95;              // of the GPU's time, to all goals and requests; the rest pays for switches
  double audit_part = 0.01;                 // of the GPU's time, for audits
  Nanos first_audits = 200 * kMillisecond;  // more, for a vGPU of which nothing is known
};

}  // namespace tessera::sched
