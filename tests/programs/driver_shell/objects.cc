// Requests to the resource manager, which is not there: this program answers its own ioctl(2), so that a test sees what
// the shim makes of them.
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cstdarg>

#include "channel/rm/driver_abi.h"
#include "shell.h"

namespace abi = tessera::channel::abi;

namespace {

// The system call itself: its result, or an error number below 0.
long CallKernel(long number, const long (&a)[6]) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a[0];
  register long x1 asm("x1") = a[1];
  register long x2 asm("x2") = a[2];
  register long x3 asm("x3") = a[3];
  register long x4 asm("x4") = a[4];
  register long x5 asm("x5") = a[5];
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#endif
}

}  // namespace

// In front of the C library's: the shim calls it for ioctl.
extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) noexcept {
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_ioctl && _IOC_TYPE(static_cast<unsigned long>(a[1])) == abi::kIoctlType) return 0;
  const long result = CallKernel(number, a);
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

namespace tessera::shell {
namespace {

constexpr std::uint32_t kClient = 0xc1d00001, kDevice = 2, kGroup = 3, kFirstChannel = 10;

void Alloc(std::uint32_t parent, std::uint32_t object, std::uint32_t cls, void* params = nullptr) {
  abi::Alloc alloc = {.root = kClient,
                      .parent = parent,
                      .object = object,
                      .cls = cls,
                      .params = reinterpret_cast<std::uint64_t>(params)};
  ioctl(5, _IOWR(abi::kIoctlType, abi::kAlloc, abi::Alloc), &alloc);
}

// make-channels N: as a context does, and with a free of nothing as the driver's library does it.
Reply MakeChannels(const Words& words) {
  abi::DeviceParams device = {};
  abi::GroupParams group = {.engine = abi::kEngineGraphics};
  Alloc(0, kClient, abi::kRootClient);
  Alloc(kClient, kDevice, abi::kDevice, &device);
  Alloc(kDevice, kGroup, abi::kChannelGroup, &group);
  const auto count = static_cast<std::uint32_t>(NumberAt(words, 0));
  for (std::uint32_t i = 0; i < count; ++i) Alloc(kGroup, kFirstChannel + i, abi::kAnyChannel);
  abi::Free nothing = {.root = kClient};
  ioctl(5, _IOWR(abi::kIoctlType, abi::kFree, abi::Free), &nothing);
  return cuda::CUDA_SUCCESS;
}

// free-object client|group|CHANNEL: with all that was made under it.
Reply FreeObject(const Words& words) {
  const std::string& what = words.at(0);
  abi::Free free = {.root = kClient};
  free.object = what == "client"  ? kClient
                : what == "group" ? kGroup
                                  : kFirstChannel + static_cast<std::uint32_t>(NumberAt(words, 0));
  ioctl(5, _IOWR(abi::kIoctlType, abi::kFree, abi::Free), &free);
  return cuda::CUDA_SUCCESS;
}

}  // namespace

void AddObjectCommands(Commands& commands) {
  commands["make-channels"] = MakeChannels;
  commands["free-object"] = FreeObject;
}

}  // namespace tessera::shell
