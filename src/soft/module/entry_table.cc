// Every symbol of the driver: a weak stub for each, which a definition elsewhere in the library replaces, and a table
// to find them by name. Generated from libcuda.symbols: driver_symbols.inc holds a SYMBOL(name) for each, sorted.
#include "soft/module/entry_table.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>

namespace {

// CUDA_ERROR_NOT_SUPPORTED; the first time with a word to whoever looks at the terminal.
int NotSupported(const char* name, std::atomic<bool>& told) {
  if (!told.exchange(true)) std::fprintf(stderr, "tessera soft GPU: %s is not supported\n", name);
  return 801;
}

}  // namespace

#define SYMBOL(name)                                                   \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    static std::atomic<bool> told = false;                             \
    return NotSupported(#name, told);                                  \
  }
#include "driver_symbols.inc"
#undef SYMBOL

namespace tessera::soft {
namespace {

struct Entry {
  std::string_view name;
  int (*function)();
};

const Entry kEntries[] = {
#define SYMBOL(name) {#name, name},
#include "driver_symbols.inc"
#undef SYMBOL
};

}  // namespace

void* FindEntry(std::string_view symbol) {
  const auto found = std::ranges::lower_bound(kEntries, symbol, {}, &Entry::name);
  const bool exists = found != std::end(kEntries) && found->name == symbol;
  return exists ? reinterpret_cast<void*>(found->function) : nullptr;
}

}  // namespace tessera::soft
