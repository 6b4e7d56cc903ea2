#pragma once

#include "base/unique_fd.h"

namespace tessera {

// Whether a descriptor that a program sent can be examined and closed without blocking. True for a device, as of the
// NVIDIA driver's memory, for memory alone, as of the soft GPU, and for one without a file, as a seccomp listener. A
// file of a file system in user space, which may be the program's own, may never answer.
bool IsPrompt(int fd);

// Maximum number of threads that wait for such files.
inline constexpr int kMostClosers = 64;

// Closes it on a thread that may block forever. It stays open if there are kMostClosers of them. Any thread.
void CloseElsewhere(UniqueFd fd);

// Whether there are kMostClosers of them: then take no descriptors of programs for now.
bool CanCloseNoMore();

// Lets the process have as many descriptors as its hard limit permits. Many systems start programs with a soft limit of
// 1024.
void RaiseDescriptorLimit();

}  // namespace tessera
