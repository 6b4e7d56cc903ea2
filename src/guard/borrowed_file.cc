#include "guard/borrowed_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

namespace tessera::guard {
namespace {

constexpr long kSeccompFilter = 2;  // proc(5), Seccomp

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// -1 for names that are no number.
int NumberOf(const char* name) {
  int number = -1;
  const char* end = name + std::strlen(name);
  const auto [at, error] = std::from_chars(name, end, number);
  return error == std::errc() && at == end ? number : -1;
}

void AddControlFiles(const KernelBoundary& boundary, pid_t pid, std::vector<HeldFile>& files) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd", pid);
  const Directory directory(opendir(path));
  if (!directory) return;
  while (const dirent* entry = readdir(directory.get())) {
    const int fd = NumberOf(entry->d_name);
    struct stat file;
    if (fd < 0 || fstatat(dirfd(directory.get()), entry->d_name, &file, 0) != 0) continue;
    if (boundary.Kind(file) == KernelBoundary::File::kControl) files.push_back({.pid = pid, .fd = fd});
  }
}

}  // namespace

UniqueFd Borrow(int pidfd, int fd) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0))); }

KernelBoundary::File KindOf(const KernelBoundary& boundary, int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 ? boundary.Kind(file) : KernelBoundary::File::kOther;
}

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

std::vector<HeldFile> FindControlFiles(const KernelBoundary& boundary) {
  std::vector<HeldFile> files;
  const Directory proc(opendir("/proc"));
  if (!proc) return files;
  while (const dirent* entry = readdir(proc.get())) {
    const pid_t pid = NumberOf(entry->d_name);
    if (pid > 0 && StatusField(pid, "Seccomp") == kSeccompFilter) AddControlFiles(boundary, pid, files);
  }
  return files;
}

}  // namespace tessera::guard
