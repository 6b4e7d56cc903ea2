// How a kernel for this processor numbers ioctl(2), for its own programs and for those of the 32-bit processor before
// it.
#pragma once

#include <linux/audit.h>
#include <sys/syscall.h>

#include <cstdint>

namespace tessera::guard {

inline constexpr std::uint32_t kIoctl = SYS_ioctl;
inline constexpr std::uint32_t kIoctl32 = 54;  // i386 and 32-bit ARM

#if defined(__x86_64__)
inline constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
// x32 sets bit 30; older kernels took its own number without the bit as well.
inline constexpr std::uint32_t kOtherBits = 0x40000000, kIoctlOther = 514;
#else
inline constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
inline constexpr std::uint32_t kOtherBits = 0, kIoctlOther = kIoctl;  // no third kind
#endif

}  // namespace tessera::guard
