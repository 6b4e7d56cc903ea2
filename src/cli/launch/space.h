#pragma once

#include "base/result.h"
#include "cli/launch/environment.h"
#include "client/api_client.h"
#include "client/json.h"

namespace tessera::cli {

// Waits until the space of `vgpu`, an answer of the daemon, takes programs, and notes in `place` what a program of it
// needs; does nothing if it is in none. ETIMEDOUT if the space is not ready within 20 s.
Result<void> EnterSpace(const client::ApiClient& client, const client::Json& vgpu, ProgramPlace& place);

}  // namespace tessera::cli
