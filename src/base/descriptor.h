#pragma once

#include "base/unique_fd.h"

namespace tessera {

// Whether a descriptor that a program sent can be looked at and closed without waiting for anybody: a device's, as the
// NVIDIA driver's memory has, one of memory alone, as the soft GPU's, or one without a file, as a seccomp listener. A
// file of a file system in user space, which may be the program's own, answers when that likes.
bool IsPrompt(int fd);

// How many threads may wait for such files at once.
inline constexpr int kMostClosers = 64;

// Closes it on a thread that may wait for ever. If there can be no more of them it stays open. Any thread.
void CloseElsewhere(UniqueFd fd);

// Whether there can be no more: then take no descriptors of programs until there can.
bool CanCloseNoMore();

}  // namespace tessera
