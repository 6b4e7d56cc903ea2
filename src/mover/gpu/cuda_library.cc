#include "mover/gpu/cuda_library.h"

#include "cuda/errors.h"
#include "cuda/find_driver.h"

namespace tessera::mover {

Result<CudaLibrary> CudaLibrary::Load(const std::string& path) {
  std::string why;
  void* library = cuda::OpenDriver(path, why);
  if (library == nullptr) return Fail(ENOENT, why, "install NVIDIA's driver, or take the soft GPU with --soft");
  CudaLibrary cuda;
#define F(name, symbol, ...)                                                 \
  cuda.name = reinterpret_cast<decltype(cuda.name)>(dlsym(library, symbol)); \
  if (cuda.name == nullptr) return Fail(ENOENT, "the CUDA driver has no function " symbol, "use a newer one");
  TESSERA_MOVER_FUNCTIONS(F)
#undef F
  return cuda;
}

Result<void> CheckCuda(cuda::CUresult result, const char* call) {
  if (result == cuda::CUDA_SUCCESS) return {};
  const int code = result == cuda::CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM
                   : result == cuda::CUDA_ERROR_NO_DEVICE   ? ENODEV
                                                            : EIO;
  const char* name = cuda::ResultName(result);
  return Fail(code, std::string(call) + ": " + (name != nullptr ? name : "error " + std::to_string(result)));
}

}  // namespace tessera::mover
