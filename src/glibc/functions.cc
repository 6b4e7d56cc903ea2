// Functions of glibc 2.32 to 2.36, by the kernel's calls, for programs that run with an older one. Each has the
// contract that the C library's manual gives it. All may be called from any thread and, arc4random aside, in a signal
// handler.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

struct stat;

namespace {

// What the kernel writes is the C library's own struct stat: both have it from the same header on 64-bit machines.
int StatAt(int folder, const char* path, struct stat* out, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}

// The number that a name in /proc/self/fd stands for; -1 for "." and "..".
int DescriptorOf(const char* name) {
  if (*name < '0' || *name > '9') return -1;
  int number = 0;
  for (; *name; ++name) number = number * 10 + (*name - '0');
  return number;
}

struct Entry {  // linux_dirent64
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[1];
};

// Closes what is open from `first` on, but for the folder that is being read. False if /proc is not there.
bool CloseListed(int first) {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  alignas(Entry) char entries[2048];
  for (bool closed = true; closed;) {  // a list that changes may be read again
    closed = false;
    lseek(folder, 0, SEEK_SET);
    for (long size; (size = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
      for (long at = 0; at < size;) {
        const auto* entry = reinterpret_cast<const Entry*>(entries + at);
        const int number = DescriptorOf(entry->name);
        if (number >= first && number != folder && close(number) == 0) closed = true;
        at += entry->size;
      }
    }
  }
  close(folder);
  return true;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Never said to be single-threaded: what asks only takes an atomic operation where a plain one would do.
char __libc_single_threaded = 0;

int stat(const char* path, struct stat* out) noexcept { return StatAt(AT_FDCWD, path, out, 0); }
int stat64(const char* path, struct stat* out) noexcept { return StatAt(AT_FDCWD, path, out, 0); }
int lstat(const char* path, struct stat* out) noexcept { return StatAt(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW); }
int lstat64(const char* path, struct stat* out) noexcept { return StatAt(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW); }
int fstat(int descriptor, struct stat* out) noexcept { return static_cast<int>(syscall(SYS_fstat, descriptor, out)); }
int fstat64(int descriptor, struct stat* out) noexcept { return static_cast<int>(syscall(SYS_fstat, descriptor, out)); }
int fstatat64(int folder, const char* path, struct stat* out, int flags) noexcept {
  return StatAt(folder, path, out, flags);
}

// ENOSYS on kernels before 5.9, as glibc 2.34 has it.
int close_range(unsigned first, unsigned last, int flags) noexcept {
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}

void closefrom(int first) noexcept {
  if (first < 0) first = 0;
  if (close_range(static_cast<unsigned>(first), ~0U, 0) == 0 || CloseListed(first)) return;
  // As glibc: a program that believes its files closed must not go on.
  abort();
}

uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    if (errno != EINTR) abort();
  }
  return value;
}

}  // extern "C"
#pragma GCC visibility pop
