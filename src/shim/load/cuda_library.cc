#include "cuda/cuda_abi.h"
#include "shim/load/driver_library.h"

namespace tessera::shim {
const DriverLibrary driver_library = {
    .file = "libcuda.so.1",
    .variable = "TESSERA_REAL_LIBCUDA",
    .required = {"cuInit", "cuGetProcAddress"},
    .no_driver = cuda::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
};
}  // namespace tessera::shim

// Tells a shim apart from a driver (real.cc), and one version of it from another.
extern "C" [[gnu::visibility("default")]] const char tessera_shim_version[] = TESSERA_VERSION;
