// Memory that processes share by handle.
#include "soft/api/api.h"
#include "soft/device/ipc_memory.h"
#include "soft/exec/engine.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

TESSERA_CUDA_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return WithContext([&](Context& context) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    context.engine().Synchronize();  // the memory may be moved into a file
    return MakeIpcHandle(address, handle);
  });
}

TESSERA_CUDA_API cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  return WithContext([&](Context& context) {
    return address == nullptr ? CUDA_ERROR_INVALID_VALUE : OpenIpcHandle(context, handle, address);
  });
}

TESSERA_CUDA_API cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}

TESSERA_CUDA_API cuIpcCloseMemHandle(CUdeviceptr address) {
  return WithContext([&](Context& context) {
    context.engine().Synchronize();
    return CloseIpcHandle(address);
  });
}

}  // namespace tessera::soft
