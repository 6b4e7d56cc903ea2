// Every way to find the driver leads to the same vGPU: linked, by SONAME, by absolute path (the argument), with
// RTLD_DEEPBIND, through dlsym(RTLD_NEXT), through cuGetProcAddress of both versions.
#include <dlfcn.h>

#include "driver.h"

using TotalMem = CUresult (*)(size_t*, CUdevice);
using GetProcAddressV1 = CUresult (*)(const char*, void**, int, cuuint64_t);

static void Ask(const char* way, void* function) {
  if (function == nullptr) {
    std::printf("%s: not found\n", way);
    return;
  }
  size_t total = 0;
  CU(reinterpret_cast<TotalMem>(function)(&total, 0));
  std::printf("# %s_total %zu\n", way, total);
}

static void AskLibrary(const char* way, const char* path, int flags) {
  void* library = dlopen(path, flags);
  if (library == nullptr) {
    std::printf("%s: not opened\n", way);
    return;
  }
  Ask(way, dlsym(library, "cuDeviceTotalMem_v2"));
}

int main(int argc, char** argv) {
  // Asked before cuInit, as cudart does.
  void* by_address = nullptr;
  CUdriverProcAddressQueryResult status;
  CU(cuGetProcAddress("cuDeviceTotalMem", &by_address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  CU(cuInit(0));
  Ask("linked", reinterpret_cast<void*>(cuDeviceTotalMem));
  Ask("cuGetProcAddress_v2", by_address);
  void* v1 = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
  EXPECT(v1 != nullptr);
  CU(reinterpret_cast<GetProcAddressV1>(v1)("cuDeviceTotalMem", &by_address, 12000, 0));
  Ask("cuGetProcAddress_v1", by_address);
  void* itself = nullptr;
  CU(cuGetProcAddress("cuGetProcAddress", &itself, 11030, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  CU(reinterpret_cast<GetProcAddressV1>(itself)("cuDeviceTotalMem", &by_address, 12000, 0));
  Ask("asked_for_itself", by_address);
  Ask("default", dlsym(RTLD_DEFAULT, "cuDeviceTotalMem_v2"));
  Ask("next", dlsym(RTLD_NEXT, "cuDeviceTotalMem_v2"));
  AskLibrary("soname", "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  AskLibrary("deepbind", "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (argc > 1) AskLibrary("absolute", argv[1], RTLD_NOW | RTLD_LOCAL);
  if (argc > 1) AskLibrary("absolute_deepbind", argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* unknown = dlsym(RTLD_DEFAULT, "cuNoSuchFunction");
  CUresult missing = cuGetProcAddress("cuNoSuchFunction", &by_address, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  std::printf("unknown %s %s\n", unknown == nullptr ? "NULL" : "found", Name(missing));
  size_t total = 0;
  CU(cuDeviceTotalMem(&total, 0));
  std::printf("done\n");
}
