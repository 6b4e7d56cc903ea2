#pragma once

#include <linux/filter.h>

#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::guard {

// Puts this process, all its threads and all its future children behind the kernel gate, for good. Their ioctls by
// which the NVIDIA driver hands out memory, channels and control over them wait for the reader of the returned listener
// (close-on-exec; to be given to a Supervisor). Other calls are not affected. After the listener is closed such ioctls
// fail with ENOSYS. To be called right before execve(2).
//
// Sets no_new_privs only without CAP_SYS_ADMIN, where it must, so that root's programs keep their setuid helpers.
// EBUSY: the process is behind such a gate already, and the kernel allows only one. ENOSYS: the kernel has no such
// filters.
//
// A 32-bit program makes the same ioctls by other system calls: those wait too, and the supervisor refuses them.
// io_uring cannot bypass the gate: it has no ioctl, and the driver does not implement IORING_OP_URING_CMD.
Result<UniqueFd> InstallFilter();

// The filter's program, as the kernel gets it: constant. Any thread.
std::span<const sock_filter> FilterProgram();

// Whether this descriptor is a listener as InstallFilter returns it. Safe for descriptors that a program sent: it asks
// no file system, which might never answer, and takes nothing from the listener. Needs /proc.
bool IsListener(int fd);

}  // namespace tessera::guard
