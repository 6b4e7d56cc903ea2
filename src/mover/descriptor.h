#pragma once

#include "base/unique_fd.h"

namespace tessera::mover {

// Whether a descriptor that a program sent can be looked at and closed without waiting for anybody: a device's, as the
// NVIDIA driver's memory has, or one of memory alone, as the soft GPU's. A file of a file system in user space, which
// may be the program's own, answers when that likes.
bool IsPrompt(int fd);

// Closes it on a thread that may wait for ever.
void CloseElsewhere(UniqueFd fd);

}  // namespace tessera::mover
