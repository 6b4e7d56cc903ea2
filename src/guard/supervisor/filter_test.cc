// What the filter does with each kind of call, by a reading of its program as the kernel reads it: also where no filter
// can be installed.
#include "guard/supervisor/filter.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cstring>
#include <optional>

#include "guard/request/requests.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

// What the program returns for a call. Nothing if it has an instruction that this does not know, or runs off its end.
std::optional<std::uint32_t> Run(const seccomp_data& call) {
  const auto program = FilterProgram();
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& in = program[at];
    switch (in.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (in.k + sizeof accumulator > sizeof call) return std::nullopt;
        std::memcpy(&accumulator, reinterpret_cast<const std::byte*>(&call) + in.k, sizeof accumulator);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= in.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += accumulator == in.k ? in.jt : in.jf;
        break;
      case BPF_RET | BPF_K:
        return in.k;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

std::uint32_t Answer(std::uint32_t architecture, int number, std::uint64_t request) {
  seccomp_data call{};
  call.arch = architecture;
  call.nr = number;
  call.args[0] = 3;
  call.args[1] = request;
  const auto answer = Run(call);
  EXPECT_TRUE(answer) << "no program that the kernel takes";
  return answer.value_or(0);
}

constexpr std::uint32_t kWaits = SECCOMP_RET_USER_NOTIF, kPasses = SECCOMP_RET_ALLOW;
constexpr std::uint64_t kAlloc = _IOWR(abi::kIoctlType, abi::kAlloc, abi::Alloc);
constexpr std::uint64_t kTerminal = 0x5401;  // TCGETS

#if defined(__x86_64__)
constexpr std::uint32_t kOwn = AUDIT_ARCH_X86_64, kOld = AUDIT_ARCH_I386;
#else
constexpr std::uint32_t kOwn = AUDIT_ARCH_AARCH64, kOld = AUDIT_ARCH_ARM;
#endif
constexpr int kOldIoctl = 54;  // of i386 and of 32-bit ARM

TEST(Filter, HoldsTheDriversRequests) {
  EXPECT_EQ(Answer(kOwn, SYS_ioctl, kAlloc), kWaits);
  EXPECT_EQ(Answer(kOwn, SYS_ioctl, kAlloc | std::uint64_t{0xffffffff} << 32), kWaits);  // the kernel cuts it off
  EXPECT_EQ(Answer(kOwn, SYS_ioctl, _IOWR(abi::kIoctlType, abi::kAlloc, char[200])), kWaits) << "of another size";
  for (const GuardedSize& guarded : kGuardedSizes)
    EXPECT_EQ(Answer(kOwn, SYS_ioctl, _IOC(_IOC_READ | _IOC_WRITE, 'x', guarded.number, guarded.bytes)), kWaits)
        << "of any type: " << guarded.number;
  for (const std::uint32_t number : kDisplayNumbers)
    EXPECT_EQ(Answer(kOwn, SYS_ioctl, _IOC(_IOC_READ, 'd', number, 8)), kWaits) << number;
}

TEST(Filter, LeavesAllElseAlone) {
  EXPECT_EQ(Answer(kOwn, SYS_ioctl, kTerminal), kPasses);
  EXPECT_EQ(Answer(kOwn, SYS_read, kAlloc), kPasses);
  EXPECT_EQ(Answer(kOwn, kOldIoctl, kAlloc), kPasses) << "another call here";
  EXPECT_EQ(Answer(kOld, SYS_ioctl, kAlloc), kPasses) << "another call there";
}

TEST(Filter, HoldsThoseOf32BitPrograms) {
  EXPECT_EQ(Answer(kOld, kOldIoctl, kAlloc), kWaits);
  EXPECT_EQ(Answer(kOld, kOldIoctl, kTerminal), kPasses);
}

#if defined(__x86_64__)
TEST(Filter, HoldsThoseOfX32) {
  constexpr int kX32Bit = 0x40000000;
  for (const int number : {514, 514 | kX32Bit, SYS_ioctl | kX32Bit}) EXPECT_EQ(Answer(kOwn, number, kAlloc), kWaits);
}
#endif

}  // namespace
}  // namespace tessera::guard
