#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// Where the vGPUs' use is read from: a file, a Prometheus, or else the daemon of this machine.
struct AdviseChoices {
  std::string samples;     // --samples: a CSV file (docs/plan-advise.md)
  std::string prometheus;  // --prometheus: "http://HOST[:PORT][/PATH]"
  std::string length;      // --for: how long to look, or back; empty: 10 s at the daemon, a day in Prometheus
  std::string every;       // --every: between two samples; empty: half a second, or five minutes
};

// `tessera plan --advise`: says which vGPUs are too large or too small, which two should not meet, and which fit into
// one GPU, with the commands that change it. Changes nothing. Blocks as long as it looks at the daemon.
Result<int> Advise(const Common& common, const AdviseChoices& choices);

}  // namespace tessera::cli
