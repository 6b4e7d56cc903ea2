#pragma once

#include <cstdint>
#include <functional>

#include "cuda/cuda_abi.h"
#include "soft/exec/work.h"
#include "soft/shared/arbiter.h"

namespace tessera::soft {

class Context;

// Runs one kernel on the calling thread, in the time slices that `arbiter` grants, and returns at its modelled end. The
// device stays held: the next kernel may be ready. A fault is told on standard error and becomes CUDA's code for it.
// The kernel ends early once `aborted` says so.
cuda::CUresult RunKernel(const KernelWork& work, Context& context, Arbiter& arbiter, std::uint64_t grid_id,
                         const std::function<bool()>& aborted);

}  // namespace tessera::soft
