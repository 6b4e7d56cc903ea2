#pragma once

#include "cuda/cuda_abi.h"
#include "shim/attachment.h"
#include "shim/real.h"

// An exported function of the driver that the shim implements.
#define TESSERA_HOOK extern "C" [[gnu::visibility("default")]] tessera::cuda::CUresult

namespace tessera::shim {

// The attachment of the device of the calling thread's current context, or null.
Attachment* CurrentAttachment();

// The calling thread's current context, or null.
cuda::CUcontext CurrentContext();

}  // namespace tessera::shim
