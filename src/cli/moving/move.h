#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"
#include "client/api_client.h"
#include "client/json.h"

namespace tessera::cli {

// tessera suspend|resume PID|VGPU...: takes programs off their GPUs, contexts included, and brings them back. Returns
// when that is done. All targets are tried; each failure is a line on stderr. 1 if one failed.
Result<int> Suspend(const Common& common, const std::vector<std::string>& targets, bool file);
Result<int> Resume(const Common& common, const std::vector<std::string>& targets);

// tessera migrate PID|VGPU --gpu GPU[,GPU...]: moves a program, or a vGPU with its programs, to other GPUs. Returns
// when it is there. `dry`: says what would be done.
Result<int> Migrate(const Common& common, const std::string& target, const std::string& gpus, bool dry);

// How far programs are: of those in `suspensions` (the array in the daemon's answer), by the array in GET
// /v1/processes. A program that has ended counts as done.
enum class Way { kToMemory, kToFile, kBack };
struct SuspensionStanding {
  bool done = true;
  std::string phase;  // of one that is not, as PhaseText
  std::string error;  // of one that could not; empty: none
};
// "its memory goes to host memory, 4 GiB left", of an entry of GET /v1/processes; empty: it is on its GPUs.
std::string PhaseText(const client::Json& process);
SuspensionStanding StandingOf(const client::Json& suspensions, const client::Json& processes, Way way);

// "vGPU a `verb` from GPU 0 to GPU 1", a line for each move of the daemon's answer to a migration; and what the whole
// costs.
void PrintMoves(const client::Json& migration, const char* verb);
void PrintCosts(const client::Json& migration);
// Waits until nothing of it is on its way any more, and tells people at a terminal how far it is. EIO with the reason
// if one of the vGPUs could not be moved.
Result<void> AwaitMigration(const client::ApiClient& client, const std::string& target, const client::Json& migration);

}  // namespace tessera::cli
