// Virtual memory management: addresses, memory, and what is mapped where.
#include "soft/api/api.h"
#include "soft/device/virtual_memory.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// These calls need no context.
template <typename Function>
CUresult WithVirtualMemory(Function&& function) {
  const ApiCall call;
  return call.state() != CUDA_SUCCESS ? call.state() : function(VirtualMemory::Get());
}

}  // namespace

TESSERA_CUDA_API cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return memory.Reserve(bytes, alignment, hint, address);
  });
}

TESSERA_CUDA_API cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return WithVirtualMemory([&](VirtualMemory& memory) { return memory.Free(address, bytes); });
}

TESSERA_CUDA_API cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return memory.Create(bytes, *properties, handle);
  });
}

TESSERA_CUDA_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  return WithVirtualMemory([&](VirtualMemory& memory) { return memory.Release(handle); });
}

TESSERA_CUDA_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return memory.Retain(reinterpret_cast<CUdeviceptr>(address), handle);
  });
}

TESSERA_CUDA_API cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : memory.Map(address, bytes, offset, handle);
  });
}

TESSERA_CUDA_API cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return WithVirtualMemory([&](VirtualMemory& memory) { return memory.Unmap(address, bytes); });
}

TESSERA_CUDA_API cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* accesses,
                                std::size_t count) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (accesses == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUresult result = memory.SetAccess(address, bytes, accesses[i]);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return memory.GetAccess(address, *location, flags);
  });
}

TESSERA_CUDA_API cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
  return WithVirtualMemory(
      [&](VirtualMemory&) { return properties == nullptr ? CUDA_ERROR_INVALID_VALUE : Give(bytes, kVirtualGranule); });
}

TESSERA_CUDA_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    const auto found = memory.Find(handle);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : Give(properties, found->properties);
  });
}

TESSERA_CUDA_API cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    return memory.Export(handle, static_cast<int*>(shareable));
  });
}

// The descriptor is passed in place of the pointer.
TESSERA_CUDA_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                                CUmemAllocationHandleType type) {
  return WithVirtualMemory([&](VirtualMemory& memory) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    return memory.Import(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)), handle);
  });
}

}  // namespace tessera::soft
