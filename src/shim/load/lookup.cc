// cuGetProcAddress: the driver answers first, so that versions and per-thread-stream flags are its own; the program
// gets the shim's function of the name that it answered with, also where that is only a jump: its calls can be watched
// then.
#include <string.h>

#include "shim/load/hook.h"
#include "shim/load/unknown_functions.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

void* Substitute(const char* symbol, void* real) {
  const unsigned index = IndexOfRealAddress(real);
  if (index != kNoSymbol) return tessera_entry_table[index];
  NoteUnknown(symbol);
  return real;
}

}  // namespace

TESSERA_HOOK cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  const CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS && function && *function) *function = Substitute(symbol, *function);
  return result;
}

TESSERA_HOOK cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                                 CUdriverProcAddressQueryResult* status) {
  const CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS && function && *function) *function = Substitute(symbol, *function);
  return result;
}
