#pragma once

#include "cuda/cuda_abi.h"
#include "soft/exec/work.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft {

class Context;

// A launch as all forms of the API describe it.
struct LaunchRequest {
  cuda::CUfunction function = nullptr;  // or a CUkernel
  ptx::Dim3 grid;
  ptx::Dim3 block;
  std::uint32_t dynamic_shared_bytes = 0;
  void** parameters = nullptr;  // a pointer to each parameter
  void** extra = nullptr;       // or all of them in a buffer
  bool cooperative = false;
};

// Checks the launch against the function and the device's limits, and copies the parameters. The errors are CUDA's:
// CUDA_ERROR_INVALID_HANDLE, _INVALID_VALUE, _LAUNCH_OUT_OF_RESOURCES, _COOPERATIVE_LAUNCH_TOO_LARGE.
cuda::CUresult ResolveLaunch(Context& context, const LaunchRequest& request, KernelWork* work);

}  // namespace tessera::soft
