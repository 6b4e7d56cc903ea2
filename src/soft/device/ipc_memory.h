#pragma once

#include "cuda/cuda_abi.h"

namespace tessera::soft {

class Context;

// Device memory that another process of the user can map. The handle says where the memory lies as an open file of this
// process, so it works for as long as this process lives and has not freed the memory.
cuda::CUresult MakeIpcHandle(cuda::CUdeviceptr address, cuda::CUipcMemHandle* handle);
// Maps it; a second time gives the same address. CUDA_ERROR_INVALID_CONTEXT in the process that made the handle.
cuda::CUresult OpenIpcHandle(Context& context, const cuda::CUipcMemHandle& handle, cuda::CUdeviceptr* address);
// As many times as it was opened.
cuda::CUresult CloseIpcHandle(cuda::CUdeviceptr address);

}  // namespace tessera::soft
