#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::guard {

// Puts the kernel gate in front of this process and of everything that it starts from now on, for ever: ioctls by
// which the NVIDIA driver hands out memory, channels and control over them wait for whoever reads the listener that is
// returned (close-on-exec; give it to a Supervisor). Nothing else is touched. Once the listener is closed such an ioctl
// fails with ENOSYS. To be called right before execve(2): all threads of the process are put behind the gate.
//
// Sets no_new_privs only where it must (without CAP_SYS_ADMIN), so that root's programs keep their setuid helpers.
// EBUSY: the process is behind such a gate already, and the kernel knows only one. ENOSYS: the kernel has none.
//
// A 32-bit program makes the same ioctls by other system calls: those wait too, and the supervisor refuses them.
// io_uring is no way around: it has no ioctl, and the driver does not implement IORING_OP_URING_CMD.
Result<UniqueFd> InstallFilter();

// Whether this descriptor is a listener as InstallFilter returns it, anybody's. For one that came from a program: asks
// no file system, which may never answer. Takes nothing from the listener. Needs /proc.
bool IsListener(int fd);

}  // namespace tessera::guard
