// For processor.h.
#pragma once

#include <cstddef>
#include <cstdint>

#define TESSERA_LIBRARY_FOLDER "/usr/lib/aarch64-linux-gnu"
#define TESSERA_GLIBC_FIRST "GLIBC_2.17"

namespace tessera {

inline constexpr std::size_t kMostPageBytes = 64 << 10;
inline constexpr std::int32_t kLinkerCacheLibrary = 0x0a03;  // FLAG_ELF_LIBC6 | FLAG_AARCH64_LIB64

// ISB rather than YIELD, which most of these processors take for nothing.
inline void Pause() { asm volatile("isb" ::: "memory"); }

}  // namespace tessera
