// For processor.h.
#pragma once

#include <cstddef>
#include <cstdint>

#define TESSERA_LIBRARY_FOLDER "/usr/lib/x86_64-linux-gnu"
#define TESSERA_GLIBC_FIRST "GLIBC_2.2.5"

namespace tessera {

inline constexpr std::size_t kMostPageBytes = 4096;
inline constexpr std::int32_t kLinkerCacheLibrary = 0x0303;  // FLAG_ELF_LIBC6 | FLAG_X8664_LIB64

inline void Pause() { __builtin_ia32_pause(); }

}  // namespace tessera
