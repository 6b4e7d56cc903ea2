// libcuda.so.1 of one version of the driver: it exports what that version exports, and tells that version. The work is
// done by the soft GPU's library, FAKE_DRIVER_BEHIND. symbols.inc has the exports, sorted: OWN(name) for those below,
// FORWARD(name) for the others.
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "cuda/cuda_abi.h"
#include "cuda/entry_points.h"

using namespace tessera::cuda;

#define EXPORT extern "C" [[gnu::visibility("default")]] CUresult

EXPORT cuDriverGetVersion(int* version) { return *version = FAKE_DRIVER_CUDA, CUDA_SUCCESS; }
EXPORT cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                           CUdriverProcAddressQueryResult* status);
EXPORT cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

namespace {

enum : unsigned {
#define FORWARD(name) k_##name,
#define OWN(name) k_##name,
#include "symbols.inc"
#undef FORWARD
#undef OWN
  kSymbols
};

}  // namespace

extern "C" {
[[gnu::visibility("hidden"), gnu::used]] void* fake_driver_table[kSymbols];
}

#if defined(__x86_64__)
#define JUMP_THROUGH_TABLE "jmpq *fake_driver_table+%c0(%%rip)"
#else
#define JUMP_THROUGH_TABLE \
  "adrp x16, fake_driver_table+%c0\n\tadd x16, x16, #:lo12:fake_driver_table+%c0\n\tldr x16, [x16]\n\tbr x16"
#endif
#define OWN(name)
#define FORWARD(name)                                                 \
  extern "C" [[gnu::naked, gnu::visibility("default")]] void name() { \
    asm volatile(JUMP_THROUGH_TABLE ::"i"(8 * k_##name));             \
  }
#include "symbols.inc"
#undef FORWARD
#undef OWN

namespace {

struct Entry {
  std::string_view name;
  void* function;
};
const Entry kEntries[] = {
#define FORWARD(name) {#name, reinterpret_cast<void*>(&name)},
#define OWN(name) {#name, reinterpret_cast<void*>(&name)},
#include "symbols.inc"
#undef FORWARD
#undef OWN
};

void* FindEntry(std::string_view symbol) {
  const auto found = std::ranges::lower_bound(kEntries, symbol, {}, &Entry::name);
  return found != std::end(kEntries) && found->name == symbol ? found->function : nullptr;
}

CUresult NotBehind() { return CUDA_ERROR_NOT_SUPPORTED; }

// By the C library's own dlopen: in a program under the shim, the shim's answers with the shim.
[[gnu::constructor]] void Load() {
  void* const library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(dlsym(library, "dlopen"));
  void* const behind = open(FAKE_DRIVER_BEHIND, RTLD_NOW | RTLD_LOCAL);
  for (unsigned i = 0; i < kSymbols; ++i) {
    void* const function = behind ? dlsym(behind, kEntries[i].name.data()) : nullptr;
    fake_driver_table[i] = function ? function : reinterpret_cast<void*>(&NotBehind);
  }
}

}  // namespace

EXPORT cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                           CUdriverProcAddressQueryResult* status) {
  if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
  const std::string symbol(EntryPointSymbol(name, std::min(version, FAKE_DRIVER_CUDA)));
  *function = nullptr;
  if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
      if (!*function) *function = FindEntry(symbol + suffix);
    }
  }
  if (!*function) *function = FindEntry(symbol);
  if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
