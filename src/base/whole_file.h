#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace tessera {

// Replaces the file atomically: readers see the whole old or the whole new one, even after a power failure. `mode` is
// the mode of the new one, less the umask. Writes PATH.new first. Blocks until the data is on the disk. `hint` goes
// into errors. A device or a pipe is written to, and stays what it is.
Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, const std::string& hint);

}  // namespace tessera
