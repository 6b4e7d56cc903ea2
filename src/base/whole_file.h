#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace tessera {

// Replaces the file: whoever reads it, even after a power failure, sees the old or the new one, whole. `mode` is that
// of the new one, less the umask. Writes PATH.new beside it first. Blocks until the disk has it. `hint` goes into
// errors.
Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, const std::string& hint);

}  // namespace tessera
