// Calls for managed memory only: prefetching, advice, discarding. Managed memory lies in host memory here, whatever is
// advised, so these check what they are given and remember nothing.
#include <algorithm>
#include <cstdint>

#include "soft/api/stream_variants.h"
#include "soft/device/address_map.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr int kCpu = -1;      // CU_DEVICE_CPU
constexpr int kNowhere = -2;  // CU_DEVICE_INVALID: what was never set

bool IsManaged(CUdeviceptr address, std::size_t bytes) {
  const auto mapping = AddressMap::Get().Lookup(address);
  return mapping && mapping->kind == MemoryKind::kManaged && bytes > 0 &&
         bytes <= mapping->address + mapping->bytes - address;
}

CUresult CheckPlace(int device) {
  return device == kCpu || DeviceOf(device) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CheckPlace(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return CheckPlace(location.id);
  return location.type > CU_MEM_LOCATION_TYPE_DEVICE && location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

template <typename Place>
CUresult Advise(CUdeviceptr address, std::size_t bytes, const Place& place) {
  return WithContext(
      [&](Context&) { return IsManaged(address, bytes) ? CheckPlace(place) : CUDA_ERROR_INVALID_VALUE; });
}

template <typename Place>
CUresult Prefetch(CUdeviceptr address, std::size_t bytes, const Place& place, CUstream handle) {
  return WithStream(
      handle, [&](const auto&) { return IsManaged(address, bytes) ? CheckPlace(place) : CUDA_ERROR_INVALID_VALUE; });
}

CUresult Check(const CUdeviceptr* addresses, const std::size_t* sizes, std::size_t count, unsigned long long flags) {
  if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!IsManaged(addresses[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CheckRange(void* data, std::size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr address,
                    std::size_t bytes) {
  const bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  const bool fits = list ? data_bytes > 0 && data_bytes % sizeof(int) == 0 : data_bytes == sizeof(int);
  if (data == nullptr || !fits || !IsManaged(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
                 attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

void AnswerRange(void* data, std::size_t data_bytes, CUmem_range_attribute attribute) {
  const bool flag = attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
                    attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE ||
                    attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE;
  std::fill_n(static_cast<int*>(data), data_bytes / sizeof(int), flag ? 0 : kNowhere);
}

}  // namespace

TESSERA_CUDA_API cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise, CUdevice device) {
  return Advise(address, bytes, device);
}

TESSERA_CUDA_API cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, CUmem_advise, CUmemLocation location) {
  return Advise(address, bytes, location);
}

TESSERA_CUDA_API cuMemPrefetchAsync(CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream stream) {
  return Prefetch(address, bytes, device, stream);
}
TESSERA_EXPORT_PTSZ(cuMemPrefetchAsync)

TESSERA_CUDA_API cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags,
                                       CUstream stream) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Prefetch(address, bytes, location, stream);
}
TESSERA_EXPORT_PTSZ(cuMemPrefetchAsync_v2)

TESSERA_CUDA_API cuMemPrefetchBatchAsync(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                                         CUmemLocation* locations, std::size_t* starts, std::size_t location_count,
                                         unsigned long long flags, CUstream handle) {
  return WithStream(handle, [&](const auto&) {
    if (locations == nullptr || starts == nullptr || location_count == 0 || location_count > count || starts[0] != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = Check(addresses, sizes, count, flags);
    for (std::size_t i = 0; result == CUDA_SUCCESS && i < location_count; ++i) result = CheckPlace(locations[i]);
    return result;
  });
}
TESSERA_EXPORT_PTSZ(cuMemPrefetchBatchAsync)

TESSERA_CUDA_API cuMemDiscardBatchAsync(CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                                        unsigned long long flags, CUstream handle) {
  return WithStream(handle, [&](const auto&) { return Check(addresses, sizes, count, flags); });
}
TESSERA_EXPORT_PTSZ(cuMemDiscardBatchAsync)

TESSERA_EXPORT(cuMemDiscardAndPrefetchBatchAsync, Alias<&cuMemPrefetchBatchAsync>)
TESSERA_EXPORT(cuMemDiscardAndPrefetchBatchAsync_ptsz, PerThread<&cuMemPrefetchBatchAsync>)

TESSERA_CUDA_API cuMemRangeGetAttribute(void* data, std::size_t data_bytes, CUmem_range_attribute attribute,
                                        CUdeviceptr address, std::size_t bytes) {
  return WithContext([&](Context&) {
    const CUresult result = CheckRange(data, data_bytes, attribute, address, bytes);
    if (result == CUDA_SUCCESS) AnswerRange(data, data_bytes, attribute);
    return result;
  });
}

TESSERA_CUDA_API cuMemRangeGetAttributes(void** data, std::size_t* data_bytes, CUmem_range_attribute* attributes,
                                         std::size_t count, CUdeviceptr address, std::size_t bytes) {
  return WithContext([&](Context&) {
    if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0)
      return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUresult result = CheckRange(data[i], data_bytes[i], attributes[i], address, bytes);
      if (result != CUDA_SUCCESS) return result;
    }
    for (std::size_t i = 0; i < count; ++i) AnswerRange(data[i], data_bytes[i], attributes[i]);
    return CUDA_SUCCESS;
  });
}

}  // namespace tessera::soft
