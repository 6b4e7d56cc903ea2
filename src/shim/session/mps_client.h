#pragma once

#include "cuda/cuda_abi.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The driver's cuInit for a program in a space: while the MPS server starts, or ends the clients of a fault, it waits,
// for 15 s at most. CUDA_ERROR_NO_DEVICE, with a line on stderr, if the program is no client of MPS after it.
cuda::CUresult InitInSpace(const wire::Welcome& terms, unsigned flags);

}  // namespace tessera::shim
