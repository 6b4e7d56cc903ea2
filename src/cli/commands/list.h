#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/terminal/table.h"
#include "client/json.h"

namespace tessera::cli {

// `tessera ps` and `tessera gpus`: what the daemon answers as a table, or as it came with --json.
Result<int> ListProcesses(const Common& common);
Result<int> ListGpus(const Common& common);

// The tables alone, of the arrays that GET /v1/processes and /v1/gpus hold.
Table ProcessTable(const client::Json& processes);
Table GpuTable(const client::Json& gpus);
// Why the time of a GPU is not divided by its channels, for under the table; empty where it is everywhere.
std::string GpuNotes(const client::Json& gpus);

}  // namespace tessera::cli
