#pragma once

#include "channel/control/control.h"
#include "server/record/latency.h"

namespace tessera::server {

// The daemon's calls to the driver that steer channels: how often, and how long freezes and thaws took.
struct DriverCalls {
  // The control outlives the figures; it may be null.
  explicit DriverCalls(const channel::Control* control) : control(control) {}
  channel::CallCounts Counts() const { return control ? control->Counts() : channel::CallCounts(); }

  CallRate rate;
  Latency freezes, thaws;
  const channel::Control* const control;
};

}  // namespace tessera::server
