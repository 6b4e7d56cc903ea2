#pragma once

#include <cstddef>

#include "base/unique_fd.h"

namespace tessera {

// Whether a descriptor that a program sent can be examined without blocking, and closed in some milliseconds. True for
// a device, as of the NVIDIA driver's memory, for memory alone, as of the soft GPU, and for one without a file, as a
// seccomp listener. A file of a file system in user space, which may be the program's own, may never answer.
bool IsPrompt(int fd);

// Closes a prompt descriptor that a program sent, or that is a duplicate of a program's. If it is a device's, a thread
// does that soon: where it is the last one of a dead program, its driver frees all that the program had before the call
// returns. The thread is made for the first one and stays. Any thread; an empty descriptor is nothing to do.
void CloseDevice(UniqueFd fd);

// Maximum number of threads that wait for such files.
inline constexpr int kMostClosers = 64;

// Closes it on a thread that may block forever. It stays open if there are kMostClosers of them. Any thread.
void CloseElsewhere(UniqueFd fd);

// Descriptors of devices that may wait to be closed.
inline constexpr std::size_t kMostToClose = 4096;

// Whether there are kMostClosers threads, or kMostToClose descriptors that wait: then take no descriptors of programs.
bool CanCloseNoMore();

// Lets the process have as many descriptors as its hard limit permits. Many systems start programs with a soft limit of
// 1024.
void RaiseDescriptorLimit();

}  // namespace tessera
