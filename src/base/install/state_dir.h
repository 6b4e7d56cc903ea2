#pragma once

#include <string>

#include "base/result.h"

namespace tessera {

// Where the daemon of `run_dir` keeps what outlives a boot. `flag` if not empty. Else, where that is not the default
// run directory, `run_dir` itself, so that daemons of several directories never meet. Else /var/lib/tessera for root,
// and for others $XDG_STATE_HOME/tessera/HOST (~/.local/state where that is not set): home directories may be shared by
// machines. With `soft`, "tessera-soft".
std::string StateDir(const std::string& flag, const std::string& run_dir, bool soft);

// Makes the directory (0700) and those above it that are missing. An error if it is not this user's, or others may
// write to it.
Result<void> PrepareStateDir(const std::string& path);

}  // namespace tessera
