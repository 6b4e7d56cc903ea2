#include "mover/descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace tessera::mover {
namespace {

// What the kernel knows of a file without asking its file system (statx(2), AT_STATX_DONT_SYNC).
bool Look(int fd, struct statx& status) {
  return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0;
}

}  // namespace

bool IsPrompt(int fd) {
  struct statx status;
  if (!Look(fd, status)) return false;
  if (S_ISCHR(status.stx_mode)) return true;
  // All memory files of a kernel are on one device.
  const UniqueFd memory(memfd_create("tessera-mover", MFD_CLOEXEC));
  struct statx own;
  return memory && Look(memory.Get(), own) && status.stx_dev_major == own.stx_dev_major &&
         status.stx_dev_minor == own.stx_dev_minor;
}

void CloseElsewhere(UniqueFd fd) {
  const int file = fd.Release();
  try {
    std::thread([file] { close(file); }).detach();
  } catch (const std::system_error&) {
    // No more threads: it stays open.
  }
}

}  // namespace tessera::mover
