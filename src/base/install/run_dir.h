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

// For a daemon: makes the directory (0755) if it is missing, and checks that it belongs to this user and that nobody
// else could put something in its place. No link of another user is followed. EPERM says what is wrong.
Result<void> PrepareRunDir(const std::string& path);

// For clients, before they ask there: whether a directory that has its name by default, as /tmp/tessera-UID, can be
// what somebody else made first. A directory that a flag or $TESSERA_RUN_DIR named may be anywhere, and one that is
// missing is no fault; in either case the socket's peer must be trusted, too (base/install/peer.h). EPERM says what is
// wrong.
Result<void> CheckRunDir(const std::string& path);

}  // namespace tessera
