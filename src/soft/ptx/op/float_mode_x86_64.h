// The float mode on x86-64: bits of MXCSR, the control register of SSE.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace tessera::soft::ptx {

inline constexpr std::uint32_t kRoundMask = 0x6000, kRoundDown = 0x2000, kRoundUp = 0x4000, kRoundToZero = 0x6000;
inline constexpr std::uint32_t kFlushSubnormals = 0x8040;  // of results, and of operands

inline std::uint32_t ReadFloatMode() { return _mm_getcsr(); }
inline void WriteFloatMode(std::uint32_t mode) { _mm_setcsr(mode); }

}  // namespace tessera::soft::ptx
