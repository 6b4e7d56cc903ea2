#pragma once

#include <string>

#include "base/result.h"

namespace tessera {

// Where the daemon keeps what outlives a boot. `flag` if not empty. Else, where $TESSERA_RUN_DIR or `run_dir_flag`
// chose the run directory, that one, so that daemons of several directories never meet. Else /var/lib/tessera for root,
// and for others $XDG_STATE_HOME/tessera/HOST (~/.local/state where that is not set): home directories may be shared by
// machines. With `soft`, "tessera-soft".
std::string StateDir(const std::string& flag, const std::string& run_dir_flag, const std::string& run_dir, bool soft);

// Makes the directory (0700) and those above it that are missing. An error if it is not this user's, or others may
// write to it.
Result<void> PrepareStateDir(const std::string& path);

}  // namespace tessera
