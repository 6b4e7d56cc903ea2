// The green contexts of the process (cuGreenCtxCreate): parts of a GPU's primary context, with a CUcontext of their
// own. What is allocated in one is the primary context's, and outlives it; the end of a green context waits for no work
// (docs/hardware-log.md, 2026-11-23).
#pragma once

#include <optional>

#include "cuda/cuda_abi.h"
#include "shim/load/current_context.h"

namespace tessera::shim {

struct GreenContext {
  cuda::CUcontext context = nullptr, primary = nullptr;
  cuda::CUdevice device = -1;
};

// Any thread.
void AddGreenContext(cuda::CUgreenCtx green, const GreenContext& context);
std::optional<GreenContext> FindGreenContext(cuda::CUgreenCtx green);
void ForgetGreenContext(cuda::CUgreenCtx green);

// The context that has what is allocated in `context`. Takes no lock while there are no green contexts.
cuda::CUcontext OwningContext(cuda::CUcontext context);
// That of the calling thread's current context, or null.
inline cuda::CUcontext AllocatingContext() { return OwningContext(CurrentContext()); }

}  // namespace tessera::shim
