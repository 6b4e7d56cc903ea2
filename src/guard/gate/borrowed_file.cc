#include "guard/gate/borrowed_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

constexpr long kSeccompFilter = 2;  // proc(5), Seccomp

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// -1 for names that are no number.
int NumberNamed(const char* name) {
  int number = -1;
  const char* end = name + std::strlen(name);
  const auto [at, error] = std::from_chars(name, end, number);
  return error == std::errc() && at == end ? number : -1;
}

// As stat(2), as far as Kind needs it, without asking the file's server: that one may be gone, and stat would wait for
// ever. By what the file is and not by its name, which a program may choose.
bool Look(int directory, const char* name, int flags, struct stat& file) {
  struct statx found;
  if (statx(directory, name, flags | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE, &found) != 0) return false;
  file = {};
  file.st_mode = found.stx_mode;
  file.st_rdev = makedev(found.stx_rdev_major, found.stx_rdev_minor);
  file.st_size = static_cast<off_t>(found.stx_size);
  return true;
}

void AddControlFiles(const KernelBoundary& boundary, pid_t pid, HeldFiles& held) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd", pid);
  const Directory directory(opendir(path));
  if (!directory) {
    if (IsShortage(errno)) held.complete = false;
    return;
  }
  while (const dirent* entry = readdir(directory.get())) {
    const int fd = NumberNamed(entry->d_name);
    struct stat file;
    if (fd < 0) continue;
    if (!Look(dirfd(directory.get()), entry->d_name, 0, file)) {
      if (IsShortage(errno)) held.complete = false;
    } else if (boundary.Kind(file) == KernelBoundary::File::kControl) {
      held.files.push_back({.pid = pid, .fd = fd});
    }
  }
}

}  // namespace

UniqueFd Borrow(int pidfd, int fd) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0))); }

KernelBoundary::File KindOf(const KernelBoundary& boundary, int fd) {
  struct stat file;
  return Look(fd, "", AT_EMPTY_PATH, file) ? boundary.Kind(file) : KernelBoundary::File::kOther;
}

// RM tells a client's GPUs to the file that made it, and to nobody else.
bool Answers(KernelBoundary& boundary, int file, std::uint32_t client) {
  std::uint32_t ids[32];
  abi::Control control{.client = client,
                       .object = client,
                       .command = abi::kGetAttachedIds,
                       .flags = 0,
                       .params = reinterpret_cast<std::uint64_t>(ids),
                       .params_bytes = sizeof ids,
                       .status = abi::kNotSupported};
  const int result = boundary.Execute(file, _IOWR(abi::kIoctlType, abi::kControl, abi::Control), &control);
  return result == 0 && control.status == abi::kOk;
}

bool IsShortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

long StatusField(pid_t pid, const char* field) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/status", pid);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t length = file ? read(file.Get(), buffer.data(), buffer.size()) : -1;
  if (length <= 0) return -1;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(length));
  // A program chooses its own name, which is the first line and cannot contain a line feed (it is shown as \n).
  const auto line = text.find('\n' + std::string(field) + ":\t");
  if (line == std::string_view::npos) return -1;
  const char* const number = text.data() + line + std::strlen(field) + 3;
  long value = -1;
  std::from_chars(number, text.data() + text.size(), value);
  return value;
}

HeldFiles FindControlFiles(const KernelBoundary& boundary) {
  HeldFiles held;
  const Directory proc(opendir("/proc"));
  if (!proc) {
    held.complete = false;
    return held;
  }
  while (const dirent* entry = readdir(proc.get())) {
    const pid_t pid = NumberNamed(entry->d_name);
    if (pid <= 0) continue;
    errno = 0;
    const long mode = StatusField(pid, "Seccomp");
    if (mode == kSeccompFilter) {
      AddControlFiles(boundary, pid, held);
    } else if (mode < 0 && IsShortage(errno)) {
      held.complete = false;
    }
  }
  return held;
}

}  // namespace tessera::guard
