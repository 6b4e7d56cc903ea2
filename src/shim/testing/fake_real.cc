// In place of load/real.cc: the functions in the table are what FakeCuda puts there, and no library is loaded.
#include "shim/load/real.h"

namespace tessera::shim {

namespace {

constexpr const char* kNames[] = {
#include "symbol_names.inc"
};

}  // namespace

bool LoadReal() { return true; }
void* RealSymbol(const char*) { return nullptr; }

unsigned IndexOfRealAddress(const void* address) {
  for (unsigned i = 0; i < kSymbols; ++i)
    if (tessera_real_table[i] == address && tessera_changed_table[i]) return i;
  return kNoSymbol;
}

unsigned IndexOfName(std::string_view name) {
  for (unsigned i = 0; i < kSymbols; ++i)
    if (name == kNames[i]) return i;
  return kNoSymbol;
}

}  // namespace tessera::shim
