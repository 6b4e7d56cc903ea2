#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/terminal/table.h"
#include "client/json.h"

namespace tessera::cli {

// `tessera ps` and `tessera gpus`: print a table, or with --json the daemon's answer.
Result<int> ListProcesses(const Common& common);
Result<int> ListGpus(const Common& common);

// The tables of the arrays in GET /v1/processes and /v1/gpus.
Table ProcessTable(const client::Json& processes);
// The lines below that table: programs that have worked on host memory for long. Empty if there are none.
std::string ProcessNotes(const client::Json& processes);
Table GpuTable(const client::Json& gpus);
// Notes for under the table: why channels of a GPU are not steered, and where its memory is. Empty if there is nothing
// to say.
std::string GpuNotes(const client::Json& gpus);

}  // namespace tessera::cli
