#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// A duplicate of descriptor `fd` of the process behind `pidfd`, or empty with errno set (EBADF: it has none of that
// number; ESRCH: the process is gone). To be closed at once: it would keep a dead process's GPU memory.
UniqueFd Borrow(int pidfd, int fd);

// What kind of file a descriptor of this process is.
KernelBoundary::File KindOf(const KernelBoundary& boundary, int fd);

// A field of /proc/PID/status, as "Tgid" or "Seccomp": its number, or -1 (and a shortage in errno). `pid` may
// be a thread.
long StatusField(pid_t pid, const char* field);

// A file of File::kControl that a process holds.
struct HeldFile {
  pid_t pid = 0;
  int fd = -1;
};

struct HeldFiles {
  std::vector<HeldFile> files;
  bool complete = true;  // false: there was no looking everywhere (no /proc, no free descriptor), so there may be more
};

// Whether errno says that this process or the machine had no more descriptors or memory: another time it may go well.
bool IsShortage(int error);

// All of those held by processes behind a seccomp filter, whichever made them: forked children hold their parent's.
// Looks at every process of the machine that this user may look at: milliseconds. No server of a network file system is
// asked, which may never answer.
HeldFiles FindControlFiles(const KernelBoundary& boundary);

}  // namespace tessera::guard
