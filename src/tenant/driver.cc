#include "tenant/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "cuda/errors.h"
#include "tenant/kernels.h"

namespace tessera::tenant {
namespace {

[[noreturn]] void Die(const char* what, const char* why) {
  std::fprintf(stderr, "tessera-tenant: %s: %s\n", what, why);
  std::exit(1);
}

}  // namespace

void Must(cuda::CUresult result, const char* call) {
  if (result == cuda::CUDA_SUCCESS) return;
  const char* name = cuda::ResultName(result);
  Die(call, name ? name : "unknown error");
}

Driver::Driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) Die("no CUDA driver", dlerror());
#define F(name, symbol, ...)                                       \
  name = reinterpret_cast<decltype(name)>(dlsym(library, symbol)); \
  if (!name) Die("libcuda.so.1 has no function", symbol);
  TESSERA_TENANT_FUNCTIONS(F)
#undef F
  cuda::CUdevice device = 0;
  cuda::CUcontext context = nullptr;
  char name[128] = {};
  Must(Init(0), "cuInit");
  Must(DeviceGet(&device, 0), "cuDeviceGet");
  Must(DeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  Must(DeviceGetAttribute(&sms_, cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "cuDeviceGetAttribute");
  Must(PrimaryCtxSetFlags(device, cuda::CU_CTX_SCHED_BLOCKING_SYNC), "cuDevicePrimaryCtxSetFlags");
  Must(PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Must(CtxSetCurrent(context), "cuCtxSetCurrent");
  Must(ModuleLoadData(&module_, kKernels), "cuModuleLoadData");
  device_name_ = name;
}

Driver::~Driver() { PrimaryCtxRelease(0); }

cuda::CUfunction Driver::Kernel(const char* name) const {
  cuda::CUfunction function = nullptr;
  Must(ModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
  return function;
}

void Driver::Launch(cuda::CUfunction kernel, unsigned blocks, unsigned threads, void** parameters) const {
  Must(LaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
}

}  // namespace tessera::tenant
