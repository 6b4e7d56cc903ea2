#pragma once

#include "cuda/cuda_abi.h"
#include "shim/load/real.h"

namespace tessera::shim {

// The calling thread's current context, or null.
inline cuda::CUcontext CurrentContext() {
  cuda::CUcontext context = nullptr;
  REAL_AS(cuCtxGetCurrent, cuda::CUcontext*)(&context);
  return context;
}

}  // namespace tessera::shim
