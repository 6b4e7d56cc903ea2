// The CUDA driver's library as a program without CUDA runtime finds it, with the few functions that the self-test
// calls.
#pragma once

#include <string>

#include "base/result.h"
#include "cuda/cuda_abi.h"

namespace tessera::channel {

// Member name, exported symbol, parameter types.
#define TESSERA_CHANNEL_TEST_FUNCTIONS(F)                                                                           \
  F(Init, "cuInit", unsigned flags)                                                                                 \
  F(DeviceGetCount, "cuDeviceGetCount", int* count)                                                                 \
  F(DeviceGet, "cuDeviceGet", cuda::CUdevice* device, int index)                                                    \
  F(DeviceGetName, "cuDeviceGetName", char* name, int length, cuda::CUdevice device)                                \
  F(DeviceGetUuid, "cuDeviceGetUuid_v2", cuda::CUuuid* uuid, cuda::CUdevice device)                                 \
  F(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", cuda::CUcontext* context, cuda::CUdevice device)                  \
  F(CtxSetCurrent, "cuCtxSetCurrent", cuda::CUcontext context)                                                      \
  F(CtxSynchronize, "cuCtxSynchronize", void)                                                                       \
  F(ModuleLoadData, "cuModuleLoadData", cuda::CUmodule* module, const void* image)                                  \
  F(ModuleGetFunction, "cuModuleGetFunction", cuda::CUfunction* function, cuda::CUmodule module, const char* name)  \
  F(MemHostAlloc, "cuMemHostAlloc", void** address, std::size_t bytes, unsigned flags)                              \
  F(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", cuda::CUdeviceptr* device, void* host, unsigned flags) \
  F(LaunchKernel, "cuLaunchKernel", cuda::CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,   \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::CUstream stream,             \
    void** parameters, void** extra)

struct CudaLibrary {
  // Loads `path`; if it is empty, the driver's library: $TESSERA_REAL_LIBCUDA if set, else where programs and
  // distributions have it, Tessera's shim passed over. ENOENT if there is none. It is never unloaded.
  static Result<CudaLibrary> Load(const std::string& path);

#define F(name, symbol, ...) cuda::CUresult (*name)(__VA_ARGS__) = nullptr;
  TESSERA_CHANNEL_TEST_FUNCTIONS(F)
#undef F
};

// "cuInit: CUDA_ERROR_NO_DEVICE" as an error, unless `result` is CUDA_SUCCESS. ENODEV if there is no device, else EIO.
Result<void> CheckCuda(cuda::CUresult result, const char* call);

}  // namespace tessera::channel
