// Calls for managed memory: prefetching, advice, discarding. The driver answers CUDA_ERROR_INVALID_VALUE to them for
// memory of cuMemAlloc, as it documents ("must refer to managed memory"); so do these for memory of the pager and for
// what was imported, whatever is mapped there at that moment.
#include <algorithm>

#include "shim/load/hook.h"
#include "shim/memory/imports.h"
#include "shim/memory/paging.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

bool IsOurAddress(CUdeviceptr address) {
  CUdevice device = 0;
  return Paging::Of(address) || ImportAt(address, &device);
}

bool AnyIsOurs(const CUdeviceptr* addresses, std::size_t count) {
  return addresses && std::any_of(addresses, addresses + count, IsOurAddress);
}

}  // namespace

#define GATED(name, ...) extern "C" CUresult tessera_gated_##name(__VA_ARGS__)

#define PREFETCH(name)                                                                          \
  GATED(name, CUdeviceptr, std::size_t, CUdevice, CUstream);                                    \
  TESSERA_HOOK name(CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream stream) { \
    if (IsOurAddress(address)) return CUDA_ERROR_INVALID_VALUE;                                 \
    return tessera_gated_##name(address, bytes, device, stream);                                \
  }
PREFETCH(cuMemPrefetchAsync)
PREFETCH(cuMemPrefetchAsync_ptsz)

#define PREFETCH_TO(name)                                                                                              \
  GATED(name, CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream);                                            \
  TESSERA_HOOK name(CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags, CUstream stream) { \
    if (IsOurAddress(address)) return CUDA_ERROR_INVALID_VALUE;                                                        \
    return tessera_gated_##name(address, bytes, location, flags, stream);                                              \
  }
PREFETCH_TO(cuMemPrefetchAsync_v2)
PREFETCH_TO(cuMemPrefetchAsync_v2_ptsz)

#define PREFETCH_BATCH(name)                                                                                          \
  GATED(name, CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*, std::size_t*, std::size_t, unsigned long long, \
        CUstream);                                                                                                    \
  TESSERA_HOOK name(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count, CUmemLocation* locations,          \
                    std::size_t* starts, std::size_t location_count, unsigned long long flags, CUstream stream) {     \
    if (AnyIsOurs(addresses, count)) return CUDA_ERROR_INVALID_VALUE;                                                 \
    return tessera_gated_##name(addresses, sizes, count, locations, starts, location_count, flags, stream);           \
  }
PREFETCH_BATCH(cuMemPrefetchBatchAsync)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)

#define DISCARD_BATCH(name)                                                                                  \
  GATED(name, CUdeviceptr*, std::size_t*, std::size_t, unsigned long long, CUstream);                        \
  TESSERA_HOOK name(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count, unsigned long long flags, \
                    CUstream stream) {                                                                       \
    if (AnyIsOurs(addresses, count)) return CUDA_ERROR_INVALID_VALUE;                                        \
    return tessera_gated_##name(addresses, sizes, count, flags, stream);                                     \
  }
DISCARD_BATCH(cuMemDiscardBatchAsync)
DISCARD_BATCH(cuMemDiscardBatchAsync_ptsz)

TESSERA_HOOK cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUdevice device) {
  return IsOurAddress(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemAdvise)(address, bytes, advice, device);
}

TESSERA_HOOK cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return IsOurAddress(address) ? CUDA_ERROR_INVALID_VALUE : REAL(cuMemAdvise_v2)(address, bytes, advice, location);
}

TESSERA_HOOK cuMemRangeGetAttribute(void* data, std::size_t data_bytes, CUmem_range_attribute attribute,
                                    CUdeviceptr address, std::size_t bytes) {
  if (IsOurAddress(address)) return CUDA_ERROR_INVALID_VALUE;
  return REAL(cuMemRangeGetAttribute)(data, data_bytes, attribute, address, bytes);
}

TESSERA_HOOK cuMemRangeGetAttributes(void** data, std::size_t* data_bytes, CUmem_range_attribute* attributes,
                                     std::size_t count, CUdeviceptr address, std::size_t bytes) {
  if (IsOurAddress(address)) return CUDA_ERROR_INVALID_VALUE;
  return REAL(cuMemRangeGetAttributes)(data, data_bytes, attributes, count, address, bytes);
}
