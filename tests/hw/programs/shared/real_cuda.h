// The driver's own libcuda, opened by its path and with nothing preloaded: a program that gets around the shim. C++20.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

// Starts this program again without the preloaded shim and without its folder in the search path.
inline void WithoutShim(char** argv) {
  if (getenv("LD_PRELOAD") == nullptr) return;
  unsetenv("LD_PRELOAD");
  const char* path = getenv("LD_LIBRARY_PATH");
  std::string kept;
  for (std::string rest = path ? path : ""; !rest.empty();) {
    const size_t end = rest.find(':');
    const std::string folder = rest.substr(0, end);
    rest = end == rest.npos ? "" : rest.substr(end + 1);
    if (!folder.ends_with("/lib/tessera")) kept += (kept.empty() ? "" : ":") + folder;
  }
  setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
  execv("/proc/self/exe", argv);
  perror("exec");
  exit(1);
}

// Of the driver's functions those that are used here, under their own names.
struct RealCuda {
  explicit RealCuda(const char* path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      printf("%s\n", dlerror());
      exit(77);
    }
  }
  void* library;
};

// One call of the driver; ends the program unless it succeeds.
#define REAL_NAME_OF(name) #name
#define REAL_NAME(name) REAL_NAME_OF(name)  // cuda.h renames: cuMemAlloc is cuMemAlloc_v2
#define REAL_FUNCTION(real, name) reinterpret_cast<decltype(&name)>(dlsym((real).library, REAL_NAME(name)))
#define REAL(real, name, ...)                                            \
  do {                                                                   \
    const CUresult real_result = REAL_FUNCTION(real, name)(__VA_ARGS__); \
    if (real_result != CUDA_SUCCESS) {                                   \
      printf("%s: CUDA error %d\n", #name, real_result);                 \
      fflush(stdout);                                                    \
      _exit(1);                                                          \
    }                                                                    \
  } while (0)

inline void RealContext(const RealCuda& real) {
  CUdevice device;
  CUcontext context;
  REAL(real, cuInit, 0);
  REAL(real, cuDeviceGet, &device, 0);
  REAL(real, cuDevicePrimaryCtxRetain, &context, device);
  REAL(real, cuCtxSetCurrent, context);
}
