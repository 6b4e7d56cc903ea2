// Calls that may wait for work that the driver itself submits (uploads of code, pieces of a copy), which no marker
// covers.
#include "shim/device/in_call.h"
#include "shim/memory/sync_memops.h"

using Word = std::uintptr_t;

// If a function has fewer arguments than these, the others have undefined values, and are passed on unread.
#define TESSERA_BLOCKS(name)                                                                  \
  TESSERA_HOOK name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i) { \
    const tessera::shim::InCall in_call;                                                      \
    return REAL(name)(a, b, c, d, e, f, g, h, i);                                             \
  }
#define TESSERA_COPY(name)                                                                                       \
  extern "C" tessera::cuda::CUresult tessera_gated_##name(Word, Word, Word, Word, Word, Word, Word, Word, Word); \
  TESSERA_HOOK name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i) {                    \
    const tessera::shim::InCall in_call;                                                                         \
    return tessera_gated_##name(a, b, c, d, e, f, g, h, i);                                                      \
  }
#define TESSERA_COPY_NOW(name, stream)                                                                           \
  extern "C" tessera::cuda::CUresult tessera_gated_##name(Word, Word, Word, Word, Word, Word, Word, Word, Word); \
  TESSERA_HOOK name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i) {                    \
    const tessera::shim::InCall in_call;                                                                         \
    return tessera::shim::AfterMemop(tessera_gated_##name(a, b, c, d, e, f, g, h, i), tessera::cuda::stream);    \
  }
#include "blocking_calls.inc"
#undef TESSERA_COPY_NOW
#undef TESSERA_COPY
#undef TESSERA_BLOCKS
