// The CUDA driver as any program finds it: libcuda.so.1 by dlopen, a context on device 0. No CUDA toolkit, no runtime.
#pragma once

#include <string>

#include "cuda/cuda_abi.h"

namespace tessera::tenant {

// The driver's functions that the tenant calls: name here, exported symbol, parameter types.
#define TESSERA_TENANT_FUNCTIONS(F)                                                                                    \
  F(Init, "cuInit", unsigned flags)                                                                                    \
  F(DeviceGet, "cuDeviceGet", cuda::CUdevice* device, int index)                                                       \
  F(DeviceGetName, "cuDeviceGetName", char* name, int length, cuda::CUdevice device)                                   \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", int* value, cuda::CUdevice_attribute attribute, cuda::CUdevice device) \
  F(PrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags_v2", cuda::CUdevice device, unsigned flags)                        \
  F(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", cuda::CUcontext* context, cuda::CUdevice device)                     \
  F(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", cuda::CUdevice device)                                          \
  F(CtxSetCurrent, "cuCtxSetCurrent", cuda::CUcontext context)                                                         \
  F(CtxSynchronize, "cuCtxSynchronize", void)                                                                          \
  F(ModuleLoadData, "cuModuleLoadData", cuda::CUmodule* module, const void* image)                                     \
  F(ModuleGetFunction, "cuModuleGetFunction", cuda::CUfunction* function, cuda::CUmodule module, const char* name)     \
  F(MemAlloc, "cuMemAlloc_v2", cuda::CUdeviceptr* address, std::size_t bytes)                                          \
  F(MemFree, "cuMemFree_v2", cuda::CUdeviceptr address)                                                                \
  F(MemsetD32, "cuMemsetD32_v2", cuda::CUdeviceptr to, unsigned value, std::size_t words)                              \
  F(MemcpyHtoD, "cuMemcpyHtoD_v2", cuda::CUdeviceptr to, const void* from, std::size_t bytes)                          \
  F(MemcpyDtoH, "cuMemcpyDtoH_v2", void* to, cuda::CUdeviceptr from, std::size_t bytes)                                \
  F(EventCreate, "cuEventCreate", cuda::CUevent* event, unsigned flags)                                                \
  F(EventRecord, "cuEventRecord", cuda::CUevent event, cuda::CUstream stream)                                          \
  F(EventSynchronize, "cuEventSynchronize", cuda::CUevent event)                                                       \
  F(LaunchKernel, "cuLaunchKernel", cuda::CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::CUstream stream,                \
    void** parameters, void** extra)

// Ends the program with status 1 and the call's name and result on stderr, unless `result` is CUDA_SUCCESS. A tenant
// has nothing to fall back on: only memory that is refused is expected, and handled where it is asked for.
void Must(cuda::CUresult result, const char* call);

// The driver's functions with a context on device 0 current and the kernels of kernels.h loaded. For one thread.
class Driver {
 public:
  // Waiting in the driver sleeps instead of spinning, because many tenants on few cores must not take the CPU from one
  // another.
  Driver();
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const std::string& device_name() const { return device_name_; }
  int sms() const { return sms_; }  // that the device shows: a limit of SMs is taken off
  cuda::CUfunction Kernel(const char* name) const;
  void Launch(cuda::CUfunction kernel, unsigned blocks, unsigned threads, void** parameters) const;

#define F(name, symbol, ...) cuda::CUresult (*name)(__VA_ARGS__) = nullptr;
  TESSERA_TENANT_FUNCTIONS(F)
#undef F

 private:
  std::string device_name_;
  int sms_ = 0;
  cuda::CUmodule module_ = nullptr;
};

}  // namespace tessera::tenant
