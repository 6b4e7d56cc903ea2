// cuGetProcAddress: the driver answers first, so that versions and per-thread-stream flags are its own; where the shim
// has a function in place of what it answered, the program gets that.
#include <string.h>

#include "shim/load/hook.h"
#include "shim/load/unknown_functions.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

void* Substitute(const char* symbol, void* real) {
  const unsigned index = IndexOfRealAddress(real);
  if (index == kNoSymbol) NoteUnknown(symbol);
  if (index == kNoSymbol || !tessera_own_table[index]) return real;
  return const_cast<void*>(tessera_own_table[index]);
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
