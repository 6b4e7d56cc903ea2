// The driver exports most functions that concern streams twice: under their own name a null stream means the legacy
// default stream, under the name with _ptsz or _ptds the calling thread's own. The second ones are made here from the
// first.
#pragma once

#include "soft/api/api.h"

namespace tessera::soft {

template <typename Argument>
Argument OwnStreamIfNull(Argument argument) {
  return argument;
}
template <>
inline cuda::CUstream OwnStreamIfNull(cuda::CUstream stream) {
  return stream != nullptr ? stream : cuda::CU_STREAM_PER_THREAD;
}

// `function` with the calling thread's stream for null ones.
template <auto function>
struct PerThread;
template <typename... Arguments, cuda::CUresult (*function)(Arguments...)>
struct PerThread<function> {
  using Type = cuda::CUresult(Arguments...);
  static cuda::CUresult Call(Arguments... arguments) { return function(OwnStreamIfNull(arguments)...); }
};

// `function` under another name.
template <auto function>
struct Alias;
template <typename... Arguments, cuda::CUresult (*function)(Arguments...)>
struct Alias<function> {
  using Type = cuda::CUresult(Arguments...);
  static cuda::CUresult Call(Arguments... arguments) { return function(arguments...); }
};

}  // namespace tessera::soft

// Exports the static function `Call` of a template like the ones above as `name`. The symbol is an indirect function
// (STT_GNU_IFUNC), so that its parameters need not be written down again; the resolver runs before sanitizers do.
#define TESSERA_EXPORT(name, ...)                                                                             \
  extern "C" {                                                                                                \
  __attribute__((no_sanitize("address", "thread", "undefined"))) decltype(&__VA_ARGS__::Call) name##_find() { \
    return &__VA_ARGS__::Call;                                                                                \
  }                                                                                                           \
  __attribute__((visibility("default"), ifunc(#name "_find"))) __VA_ARGS__::Type name;                        \
  }

#define TESSERA_EXPORT_PTSZ(name) TESSERA_EXPORT(name##_ptsz, ::tessera::soft::PerThread<&name>)
