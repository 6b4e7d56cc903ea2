// The context that the calling thread works in now, and the device under it.
#pragma once

#include "cuda/cuda_abi.h"
#include "shim/device/attachment.h"
#include "shim/load/hook.h"

namespace tessera::shim {

// The attachment of the device of the calling thread's current context, or null.
Attachment* CurrentAttachment();

// The calling thread's current context, or null.
cuda::CUcontext CurrentContext();

}  // namespace tessera::shim
