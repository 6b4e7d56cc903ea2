#include "channel/self_test/cuda_library.h"

#include "cuda/errors.h"
#include "cuda/find_driver.h"

namespace tessera::channel {

Result<CudaLibrary> CudaLibrary::Load(const std::string& path) {
  std::string why;
  void* library = cuda::OpenDriver(path, why);
  if (library == nullptr) return Fail(ENOENT, why);
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
