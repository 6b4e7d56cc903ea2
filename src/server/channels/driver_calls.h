#pragma once

#include "server/record/latency.h"

namespace tessera::server {

// The daemon's calls to the driver that steer channels: how often, and how long freezes and thaws took.
struct DriverCalls {
  CallRate rate;
  Latency freezes, thaws;
};

}  // namespace tessera::server
