#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// A duplicate of descriptor `fd` of the process behind `pidfd`, or empty with errno set (EBADF: no such descriptor;
// ESRCH: the process is gone). To be closed soon: it would keep the GPU memory of a dead process.
UniqueFd Borrow(int pidfd, int fd);

// The kind of file of a descriptor of this process.
KernelBoundary::File KindOf(const KernelBoundary& boundary, int fd);

// Whether a file of File::kControl made the RM client. Asks the driver, and changes nothing.
bool Answers(KernelBoundary& boundary, int file, std::uint32_t client);

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
  bool complete = true;  // false: the search failed in part (no /proc, no free descriptor), so there may be more
};

// Whether an errno value reports a shortage of descriptors or memory: a later try may succeed.
bool IsShortage(int error);

// Finds such files of all processes behind a seccomp filter, whichever process opened them: forked children hold their
// parent's. Looks at every process that this user may examine, which takes milliseconds. Asks no file system, which
// might never answer.
HeldFiles FindControlFiles(const KernelBoundary& boundary);

}  // namespace tessera::guard
