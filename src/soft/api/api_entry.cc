// How programs find the driver's functions by name.
#include <atomic>
#include <cstdio>
#include <string>

#include "cuda/entry_points.h"
#include "soft/api/api.h"
#include "soft/module/entry_table.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::uint64_t kProcAddressFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

void* Find(const std::string& symbol, std::uint64_t flags) {
  if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
      if (void* function = FindEntry(symbol + suffix)) return function;
    }
  }
  return FindEntry(symbol);
}

}  // namespace

TESSERA_CUDA_API cuGetProcAddress_v2(const char* name, void** function, int cuda_version, std::uint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || *name == '\0' || function == nullptr || (flags & ~kProcAddressFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string symbol(EntryPointSymbol(name, cuda_version));
  *function = symbol.empty() ? nullptr : Find(symbol, flags);
  if (status != nullptr) {
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : symbol.empty()     ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

TESSERA_CUDA_API cuGetProcAddress(const char* name, void** function, int cuda_version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, cuda_version, flags, nullptr);
}

// Interfaces that NVIDIA's own libraries have among themselves. NVIDIA's CUDA runtime makes sure through them that the
// driver is NVIDIA's, which the soft GPU does not pretend to be: programs of the driver API run on it, others do not.
TESSERA_CUDA_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) {
    std::fputs("tessera soft GPU: NVIDIA's CUDA runtime needs NVIDIA's driver; programs of the driver API run here\n",
               stderr);
  }
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace tessera::soft
