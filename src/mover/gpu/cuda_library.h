// The few functions of the CUDA driver that the mover calls.
#pragma once

#include <string>

#include "base/result.h"
#include "cuda/cuda_abi.h"

namespace tessera::mover {

// Member name, exported symbol, parameter types.
#define TESSERA_MOVER_FUNCTIONS(F)                                                                                     \
  F(Init, "cuInit", unsigned flags)                                                                                    \
  F(DeviceGetCount, "cuDeviceGetCount", int* count)                                                                    \
  F(DeviceGet, "cuDeviceGet", cuda::CUdevice* device, int index)                                                       \
  F(DeviceGetUuid, "cuDeviceGetUuid_v2", cuda::CUuuid* uuid, cuda::CUdevice device)                                    \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", int* value, cuda::CUdevice_attribute attribute, cuda::CUdevice device) \
  F(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", char* id, int bytes, cuda::CUdevice device)                              \
  F(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", cuda::CUcontext* context, cuda::CUdevice device)                     \
  F(CtxSetCurrent, "cuCtxSetCurrent", cuda::CUcontext context)                                                         \
  F(StreamCreate, "cuStreamCreate", cuda::CUstream* stream, unsigned flags)                                            \
  F(EventCreate, "cuEventCreate", cuda::CUevent* event, unsigned flags)                                                \
  F(EventRecord, "cuEventRecord", cuda::CUevent event, cuda::CUstream stream)                                          \
  F(EventQuery, "cuEventQuery", cuda::CUevent event)                                                                   \
  F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,          \
    cuda::CUstream stream)                                                                                             \
  F(MemAddressReserve, "cuMemAddressReserve", cuda::CUdeviceptr* address, std::size_t bytes, std::size_t alignment,    \
    cuda::CUdeviceptr hint, unsigned long long flags)                                                                  \
  F(MemCreate, "cuMemCreate", cuda::CUmemGenericAllocationHandle* handle, std::size_t bytes,                           \
    const cuda::CUmemAllocationProp* properties, unsigned long long flags)                                             \
  F(MemRelease, "cuMemRelease", cuda::CUmemGenericAllocationHandle handle)                                             \
  F(MemMap, "cuMemMap", cuda::CUdeviceptr address, std::size_t bytes, std::size_t offset,                              \
    cuda::CUmemGenericAllocationHandle handle, unsigned long long flags)                                               \
  F(MemUnmap, "cuMemUnmap", cuda::CUdeviceptr address, std::size_t bytes)                                              \
  F(MemSetAccess, "cuMemSetAccess", cuda::CUdeviceptr address, std::size_t bytes, const cuda::CUmemAccessDesc* access, \
    std::size_t count)                                                                                                 \
  F(MemGetProperties, "cuMemGetAllocationPropertiesFromHandle", cuda::CUmemAllocationProp* properties,                 \
    cuda::CUmemGenericAllocationHandle handle)                                                                         \
  F(MemExport, "cuMemExportToShareableHandle", void* shareable, cuda::CUmemGenericAllocationHandle handle,             \
    cuda::CUmemAllocationHandleType type, unsigned long long flags)                                                    \
  F(MemImport, "cuMemImportFromShareableHandle", cuda::CUmemGenericAllocationHandle* handle, void* shareable,          \
    cuda::CUmemAllocationHandleType type)

struct CudaLibrary {
  // Loads the driver as cuda/find_driver.h says. ENOENT if there is none. It is never unloaded.
  static Result<CudaLibrary> Load(const std::string& path);

#define F(name, symbol, ...) cuda::CUresult (*name)(__VA_ARGS__) = nullptr;
  TESSERA_MOVER_FUNCTIONS(F)
#undef F
};

// "cuInit: CUDA_ERROR_NO_DEVICE" as an error, unless `result` is CUDA_SUCCESS: ENOMEM for want of memory, ENODEV for
// want of a device, else EIO.
Result<void> CheckCuda(cuda::CUresult result, const char* call);

}  // namespace tessera::mover
