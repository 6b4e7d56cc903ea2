// For programs of the driver API alone: no cudart in them, kernels from kernels.ptx beside the executable.
#pragma once

#include <unistd.h>

#include "check.h"

inline std::string BesideMe(const char* file) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  EXPECT(length > 0);
  std::string folder(path, static_cast<size_t>(length));
  return folder.substr(0, folder.rfind('/') + 1) + file;
}

// Starts the driver and makes the primary context of a GPU current.
inline CUdevice UseDevice(int number = 0) {
  CUdevice device;
  CUcontext context;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, number));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  return device;
}

// A context of its own, which becomes current.
inline CUcontext CreateContext(CUdevice device) {
  CUcontext context;
#if CUDA_VERSION >= 13000
  CU(cuCtxCreate(&context, nullptr, 0, device));
#else
  CU(cuCtxCreate(&context, 0, device));
#endif
  return context;
}

// The kernels of kernels.cuh in the current context.
struct Kernels {
  Kernels() {
    CU(cuModuleLoad(&module, BesideMe("kernels.ptx").c_str()));
    CU(cuModuleGetFunction(&empty, module, "Empty"));
    CU(cuModuleGetFunction(&fill, module, "Fill"));
    CU(cuModuleGetFunction(&mix, module, "Mix"));
  }
  void Launch(CUfunction function, CUdeviceptr data, uint32_t words, uint32_t value, CUstream stream = nullptr) const {
    void* arguments[] = {&data, &words, &value};
    CU(cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
  }

  CUmodule module;
  CUfunction empty, fill, mix;
};

inline unsigned long long DeviceChecksum(CUdeviceptr data, uint32_t words) {
  std::vector<uint32_t> host(words);
  CU(cuCtxSynchronize());
  CU(cuMemcpyDtoH(host.data(), data, size_t{words} * 4));
  return Checksum(host.data(), size_t{words} * 4);
}

inline size_t FreeBytes() {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  return free;
}

// Bytes charged beyond `free_before`, once freed memory has reached the ledger: at once or soon after.
inline size_t StillCharged(size_t free_before) {
  size_t free = FreeBytes();
  for (int i = 0; i < 200 && free < free_before; ++i) {
    usleep(10'000);
    free = FreeBytes();
  }
  return free < free_before ? free_before - free : 0;
}
