// The float mode on 64-bit ARM: bits of FPCR, the floating-point control register.
#pragma once

#include <cstdint>

namespace tessera::soft::ptx {

inline constexpr std::uint32_t kRoundMask = 0xc00000, kRoundDown = 0x800000, kRoundUp = 0x400000,
                               kRoundToZero = 0xc00000;
inline constexpr std::uint32_t kFlushSubnormals = 0x1000000;  // of results and operands

inline std::uint32_t ReadFloatMode() {
  std::uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
  return static_cast<std::uint32_t>(mode);
}
inline void WriteFloatMode(std::uint32_t mode) { asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{mode}) : "memory"); }

}  // namespace tessera::soft::ptx
