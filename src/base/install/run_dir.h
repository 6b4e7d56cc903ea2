#pragma once

#include <string>

#include "base/result.h"

namespace tessera {

// Where the daemon's sockets live, by the rule that the CLI, the daemon and the shim share: `flag` if not empty, else
// $TESSERA_RUN_DIR, else /run/tessera for root and $XDG_RUNTIME_DIR/tessera for others (/tmp/tessera-UID where that is
// not set). With `soft`, the name gets "-soft" appended unless flag or variable decided, so that the soft GPU's daemon
// and the real one never meet.
std::string RunDir(const std::string& flag, bool soft);
// The same without flag and variable.
std::string DefaultRunDir(bool soft);

// Makes the directory (0755) if it is missing and checks that it belongs to this user and others cannot write to it.
Result<void> PrepareRunDir(const std::string& path);

}  // namespace tessera
