#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <system_error>
#include <thread>

namespace tessera {
namespace {

// A file's status without asking its file system (statx(2), AT_STATX_DONT_SYNC).
std::optional<struct statx> Look(int fd) {
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0) return std::nullopt;
  return status;
}

bool OnOneDevice(const std::optional<struct statx>& a, const std::optional<struct statx>& b) {
  return a && b && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

// All memory files of a kernel are on one device, and all that have no file on another. Made at the start: later there
// may be no descriptor left.
const std::optional<struct statx> a_memory = Look(UniqueFd(memfd_create("tessera", MFD_CLOEXEC)).Get());
const std::optional<struct statx> an_event = Look(UniqueFd(eventfd(0, EFD_CLOEXEC)).Get());

std::atomic<int> closers{0};

}  // namespace

bool IsPrompt(int fd) {
  const auto status = Look(fd);
  return status && (S_ISCHR(status->stx_mode) || OnOneDevice(status, a_memory) || OnOneDevice(status, an_event));
}

void CloseElsewhere(UniqueFd fd) {
  const int file = fd.Release();
  if (closers.fetch_add(1) < kMostClosers) {
    try {
      std::thread([file] {
        close(file);
        --closers;
      }).detach();
      return;
    } catch (const std::system_error&) {
      // No more threads.
    }
  }
  --closers;
}

bool CanCloseNoMore() { return closers >= kMostClosers; }

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace tessera
