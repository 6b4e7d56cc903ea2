#include "guard/supervisor/filter.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "guard/request/requests.h"
#include "guard/supervisor/system_calls.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

namespace tessera::guard {
namespace {

constexpr sock_filter Load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
constexpr sock_filter And(std::uint32_t mask) { return BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask); }
constexpr sock_filter Return(std::uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }
// Jumps over so many instructions if the accumulator equals `value`, or if it does not.
constexpr sock_filter IfEqual(std::uint32_t value, std::size_t then, std::size_t otherwise) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, static_cast<std::uint8_t>(then),
                  static_cast<std::uint8_t>(otherwise));
}

constexpr std::uint32_t kNumber = 0xff, kTypeAndNumber = 0xffff, kSizeAndNumber = 0x3fff00ff;

// The kernel runs a filter once for each system call number and remembers that it allows all calls of that number, so
// that only ioctls pay for it (Linux 5.11 and later).
constexpr auto MakeProgram() {
  std::array<sock_filter, 16 + kGuardedSizes.size() + kGuardedNumbers.size() + kDisplayNumbers.size()> program{};
  constexpr std::size_t kAllow = program.size() - 2, kNotify = program.size() - 1, kRequest = 8;
  std::size_t at = 0;
  const auto add = [&](sock_filter instruction) { program[at++] = instruction; };
  const auto to = [&](std::size_t target) { return target - at - 1; };

  add(Load(offsetof(seccomp_data, arch)));
  add(IfEqual(kArchitecture, 2, 0));
  add(Load(offsetof(seccomp_data, nr)));  // a 32-bit program: the kernel runs no other kind
  add(IfEqual(kIoctl32, to(kRequest), to(kAllow)));
  add(Load(offsetof(seccomp_data, nr)));
  add(And(~kOtherBits));
  add(IfEqual(kIoctl, to(kRequest), 0));
  add(IfEqual(kIoctlOther, to(kRequest), to(kAllow)));
  add(Load(offsetof(seccomp_data, args[1])));  // kRequest
  add(And(kSizeAndNumber));
  for (const GuardedSize& guarded : kGuardedSizes) {
    add(IfEqual(guarded.bytes << 16 | guarded.number, to(kNotify), 0));
  }
  add(Load(offsetof(seccomp_data, args[1])));
  add(And(kTypeAndNumber));
  for (const std::uint32_t number : kGuardedNumbers) {
    add(IfEqual(channel::abi::kIoctlType << 8 | number, to(kNotify), 0));
  }
  add(Load(offsetof(seccomp_data, args[1])));
  add(And(kNumber));
  for (const std::uint32_t number : kDisplayNumbers) add(IfEqual(number, to(kNotify), 0));
  add(Return(SECCOMP_RET_ALLOW));
  add(Return(SECCOMP_RET_USER_NOTIF));
  return program;
}

// Allocates nothing, so that a child of a process with threads may call it before execve(2).
int Install(unsigned long flags) {
  const std::span<const sock_filter> filter = FilterProgram();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
}

}  // namespace

std::span<const sock_filter> FilterProgram() {
  static constexpr auto kProgram = MakeProgram();
  return kProgram;
}

Result<UniqueFd> InstallFilter() {
  // TSYNC with TSYNC_ESRCH: all threads, and a listener. WAIT_KILLABLE_RECV (Linux 5.19): once the supervisor has a
  // call in hand, a signal that does not kill waits, or the call would be done twice.
  unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
                        SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
  int listener = Install(flags);
  if (listener < 0 && errno == EINVAL) {
    flags &= ~SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    listener = Install(flags);
  }
  if (listener < 0 && errno == EACCES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) listener = Install(flags);
  if (listener >= 0) return UniqueFd(listener);
  if (errno == EBUSY) {
    return Fail(EBUSY, "this program is already behind a kernel gate, its own or its container's",
                "leave --enforce kernel away inside 'tessera run --enforce kernel'");
  }
  if (errno == EINVAL || errno == ENOSYS) {
    return Fail(ENOSYS, "this kernel has no seccomp user notification", "use Linux 5.7 or later, or --enforce shim");
  }
  return FailErrno("cannot put the program behind the kernel gate", "use --enforce shim");
}

bool IsListener(int fd) {
  // Its name first: an ioctl on a file of a program's own file system (FUSE) would wait for that program.
  constexpr std::string_view kAnonymous = "anon_inode:";
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  std::array<char, kAnonymous.size()> name;
  const ssize_t length = readlink(path, name.data(), name.size());
  if (length < 0 || std::string_view(name.data(), static_cast<std::size_t>(length)) != kAnonymous) return false;
  // No call has the number 0: a listener says so (ENOENT), other files do not know the request (ENOTTY, EINVAL).
  std::uint64_t id = 0;
  int result;
  do {
    result = ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
  } while (result < 0 && errno == EINTR);
  return result < 0 && errno == ENOENT;
}

}  // namespace tessera::guard
