// Vectors of 256 bits for loops over much data, where not every processor of a kind has them.
//
//   TESSERA_WIDE  an attribute: the compiler may use them in this function, and in what is inlined into it. Call it
//   only
//                 if HasWide().
//   HasWide()     this processor has them. Any thread.
#pragma once

#if defined(__x86_64__)
#define TESSERA_WIDE __attribute__((target("avx2")))
namespace tessera {
inline bool HasWide() { return __builtin_cpu_supports("avx2") != 0; }
}  // namespace tessera
#else
#define TESSERA_WIDE
namespace tessera {
inline bool HasWide() { return false; }
}  // namespace tessera
#endif
