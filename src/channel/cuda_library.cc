#include "channel/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "cuda/errors.h"

namespace tessera::channel {
namespace {

// As the shim looks for it (src/shim/real.cc), after where the linker would.
constexpr const char* kPlaces[] = {
    "libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
};

void* OpenDriver() {
  for (const char* place : kPlaces) {
    void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    if (dlsym(library, "tessera_shim_version") == nullptr) return library;
    dlclose(library);
  }
  return nullptr;
}

}  // namespace

Result<CudaLibrary> CudaLibrary::Load(const std::string& path) {
  std::string file = path;
  if (const char* named = std::getenv("TESSERA_REAL_LIBCUDA"); file.empty() && named != nullptr) file = named;
  void* library = file.empty() ? OpenDriver() : dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    if (file.empty()) return Fail(ENOENT, "there is no NVIDIA driver (libcuda.so.1)");
    return Fail(ENOENT, std::string("load the CUDA driver: ") + dlerror());
  }
  CudaLibrary cuda;
#define F(name, symbol, ...)                                                 \
  cuda.name = reinterpret_cast<decltype(cuda.name)>(dlsym(library, symbol)); \
  if (cuda.name == nullptr) return Fail(ENOENT, "the CUDA driver has no function " symbol);
  TESSERA_CHANNEL_TEST_FUNCTIONS(F)
#undef F
  return cuda;
}

Result<void> CheckCuda(cuda::CUresult result, const char* call) {
  if (result == cuda::CUDA_SUCCESS) return {};
  const char* name = cuda::ResultName(result);
  return Fail(result == cuda::CUDA_ERROR_NO_DEVICE ? ENODEV : EIO,
              std::string(call) + ": " + (name != nullptr ? name : "error " + std::to_string(result)));
}

}  // namespace tessera::channel
