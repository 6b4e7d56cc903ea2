#pragma once

#include <optional>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// The contexts that a copy between the memory of two GPUs has to name.
struct CopyContexts {
  cuda::CUcontext to;
  cuda::CUcontext from;
};

// None where a plain copy of the calling thread's current context reaches both addresses, as it does where the process
// has memory that can move on one GPU only, or where the driver is to say what is wrong. Any thread.
std::optional<CopyContexts> ContextsBetween(cuda::CUdeviceptr to, cuda::CUdeviceptr from);

}  // namespace tessera::shim
