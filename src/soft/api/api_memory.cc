// Memory of the device and of the host, and what pointers are.
#include <algorithm>
#include <cstring>

#include "soft/api/api.h"
#include "soft/device/address_map.h"
#include "soft/device/heap.h"
#include "soft/device/host_memory.h"
#include "soft/device/pool.h"
#include "soft/device/virtual_memory.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/graph_memory.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::size_t kPitchUnit = 512;

// For calls that allocate or free at once, which a capture in progress may forbid.
template <typename Function>
CUresult WithUncapturedContext(Function&& function) {
  return WithContext([&](Context& context) {
    const CUresult allowed = CheckUnsafeCall();
    return allowed == CUDA_SUCCESS ? function(context) : allowed;
  });
}

std::uint64_t AddressOf(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Work that was submitted may use what is about to go.
void WaitForUsers(const Mapping& mapping, Context& current) {
  current.engine().Synchronize();
  if (mapping.context != nullptr && mapping.context != &current && mapping.context->open()) {
    mapping.context->engine().Synchronize();
  }
}

CUresult FreeDeviceMemory(Context& current, CUdeviceptr address) {
  const auto mapping = AddressMap::Get().Lookup(address);
  if (!mapping || mapping->address != address) return CUDA_ERROR_INVALID_VALUE;
  WaitForUsers(*mapping, current);
  if (mapping->kind == MemoryKind::kManaged) return FreeMapping(address, MemoryKind::kManaged);
  if (mapping->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  if (mapping->pool != nullptr) return FreeToPool(address);
  if (FindGraphMemory(address) != nullptr) return FreeGraphMemory(address);
  return mapping->context->heap().Free(address);
}

}  // namespace

// ---- device memory ------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return WithContext([&](Context& context) {
    const CUresult result = Give(free, context.device().FreeBytes());
    return result == CUDA_SUCCESS ? Give(total, context.device().spec().memory_bytes) : result;
  });
}

TESSERA_CUDA_API cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return WithUncapturedContext([&](Context& context) {
    return address == nullptr ? CUDA_ERROR_INVALID_VALUE : context.heap().Allocate(bytes, address);
  });
}

TESSERA_CUDA_API cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width, std::size_t height,
                                    unsigned element_bytes) {
  return WithUncapturedContext([&](Context& context) {
    const bool valid_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (address == nullptr || pitch == nullptr || width == 0 || height == 0 || !valid_element) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (width > SIZE_MAX - kPitchUnit) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::size_t row = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
    *pitch = row;
    return context.heap().Allocate(row * height, address);
  });
}

TESSERA_CUDA_API cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  return WithUncapturedContext([&](Context& context) {
    if (address == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    void* memory = nullptr;
    const CUresult result = AllocateHost(context, MemoryKind::kManaged, bytes, flags, &memory);
    if (result == CUDA_SUCCESS) *address = AddressOf(memory);
    return result;
  });
}

TESSERA_CUDA_API cuMemFree_v2(CUdeviceptr address) {
  return WithUncapturedContext(
      [&](Context& context) { return address == 0 ? CUDA_SUCCESS : FreeDeviceMemory(context, address); });
}

TESSERA_CUDA_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  return WithContext([&](Context&) {
    const auto mapping = AddressMap::Get().Lookup(address);
    if (!mapping) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = mapping->address;
    if (bytes != nullptr) *bytes = mapping->bytes;
    return CUDA_SUCCESS;
  });
}

// ---- host memory --------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return WithUncapturedContext([&](Context& context) {
    constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (address == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    return AllocateHost(context, MemoryKind::kHost, bytes, flags, address);
  });
}

TESSERA_CUDA_API cuMemAllocHost_v2(void** address, std::size_t bytes) {
  return cuMemHostAlloc(address, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

TESSERA_CUDA_API cuMemFreeHost(void* address) {
  return WithUncapturedContext([&](Context& context) {
    if (address == nullptr) return CUDA_SUCCESS;
    const auto mapping = AddressMap::Get().Lookup(AddressOf(address));
    if (mapping) WaitForUsers(*mapping, context);
    return FreeMapping(AddressOf(address), MemoryKind::kHost);
  });
}

TESSERA_CUDA_API cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) {
  return WithUncapturedContext([&](Context& context) {
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    return RegisterHost(context, address, bytes, flags);
  });
}

TESSERA_CUDA_API cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(address, bytes, flags);
}

TESSERA_CUDA_API cuMemHostUnregister(void* address) {
  return WithUncapturedContext([&](Context& context) {
    if (const auto mapping = AddressMap::Get().Lookup(AddressOf(address))) WaitForUsers(*mapping, context);
    const CUresult result = FreeMapping(AddressOf(address), MemoryKind::kRegistered);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

TESSERA_CUDA_API cuMemHostGetDevicePointer_v2(CUdeviceptr* device_address, void* address, unsigned flags) {
  return WithContext([&](Context&) {
    const auto mapping = AddressMap::Get().Lookup(AddressOf(address));
    if (!mapping || mapping->OnDevice() || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return Give(device_address, AddressOf(address));
  });
}

TESSERA_CUDA_API cuMemHostGetFlags(unsigned* flags, void* address) {
  return WithContext([&](Context&) {
    const auto mapping = AddressMap::Get().Lookup(AddressOf(address));
    if (!mapping || mapping->kind != MemoryKind::kHost) return CUDA_ERROR_INVALID_VALUE;
    // With unified addressing all of it is mapped for the device.
    return Give(flags, mapping->flags | CU_MEMHOSTALLOC_DEVICEMAP);
  });
}

// ---- pointers -----------------------------------------------------------------------------------------------------

namespace {

template <typename Value, typename Answer>
CUresult Answered(void* out, const Answer& answer) {
  *static_cast<Value*>(out) = static_cast<Value>(answer);
  return CUDA_SUCCESS;
}

CUresult PointerAttribute(const Mapping& mapping, CUpointer_attribute attribute, CUdeviceptr address, void* out) {
  const bool managed = mapping.kind == MemoryKind::kManaged;
  const bool on_device = mapping.OnDevice();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of graphs is the device's, as that of pools.
      if (mapping.context == nullptr || FindGraphMemory(mapping.address)) return Answered<CUcontext>(out, nullptr);
      return Answered<CUcontext>(out, mapping.context->handle());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Answered<unsigned>(out, on_device || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Answered<CUdeviceptr>(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return on_device ? CUDA_ERROR_INVALID_VALUE : Answered<CUdeviceptr>(out, address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Answered<unsigned long long>(out, mapping.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Answered<unsigned>(out, managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Answered<int>(out, mapping.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Answered<bool>(
          out, mapping.kind == MemoryKind::kDevice && mapping.pool == nullptr && !FindGraphMemory(mapping.address));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Answered<bool>(out, true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Answered<unsigned long long>(out, CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Answered<unsigned>(out, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Answered<CUmemoryPool>(out, mapping.pool);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Answered<bool>(out, mapping.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Answered<bool>(out, false);
    // Of virtual memory the whole reservation, as an H200 was seen to answer (580.159.04) for one mapped in chunks.
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: {
      CUdeviceptr begin = mapping.address;
      std::uint64_t bytes = mapping.bytes;
      VirtualMemory::Get().RangeOf(address, &begin, &bytes);
      const bool size = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE || attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
      return size ? Answered<std::size_t>(out, bytes) : Answered<CUdeviceptr>(out, begin);
    }
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The answer of cuPointerGetAttributes for memory that the driver does not know.
void ClearAttribute(CUpointer_attribute attribute, void* out) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = CU_DEVICE_INVALID;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *static_cast<unsigned*>(out) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      *static_cast<bool*>(out) = false;
      break;
    default:
      *static_cast<std::uint64_t*>(out) = 0;
  }
}

}  // namespace

TESSERA_CUDA_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = AddressMap::Get().Lookup(address);
  return mapping ? PointerAttribute(*mapping, attribute, address, data) : CUDA_ERROR_INVALID_VALUE;
}

// As an H200 answers (580.159.04). Copies between pieces of device memory end without the host here as there, so nobody
// can see whether they were waited for.
TESSERA_CUDA_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const auto mapping = AddressMap::Get().Lookup(address);
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !mapping) return CUDA_ERROR_INVALID_VALUE;
  if (mapping->kind != MemoryKind::kDevice) return CUDA_ERROR_NOT_SUPPORTED;
  AddressMap::Get().SetSyncMemops(address, *static_cast<const unsigned*>(value) != 0);
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr address) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = AddressMap::Get().Lookup(address);
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT || attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool known = mapping && PointerAttribute(*mapping, attributes[i], address, data[i]) == CUDA_SUCCESS;
    if (!known) ClearAttribute(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
