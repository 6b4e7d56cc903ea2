// Where the use of vGPUs is read from.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "cli/plan/metered_fleet.h"

namespace tessera::cli {

// A CSV file of docs/plan-advise.md. Errors name the line.
Result<SeenFleet> ReadMeteredCsv(const std::string& path);

// Asks the daemon in this run directory `every` nanoseconds, for `length`. Blocks so long.
Result<SeenFleet> WatchDaemon(const std::string& run_dir, Nanos length, Nanos every);

// Our own metrics, from a Prometheus: the last `length`, a sample `every` nanoseconds. A node is an `instance`. Blocks,
// as HttpGet does. EPROTO: it is no Prometheus; ENODATA: it has no metrics of tesserad.
Result<SeenFleet> AskPrometheus(const std::string& url, Nanos length, Nanos every);

}  // namespace tessera::cli
