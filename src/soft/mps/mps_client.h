#pragma once

#include "cuda/abi_types.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// Makes this process a client of the MPS server of the control daemon in $CUDA_MPS_PIPE_DIRECTORY, with the ceiling of
// $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. CUDA_SUCCESS, and nothing changes, without the variable or where no daemon
// listens there, as with the real driver. (The real driver also looks in /tmp/nvidia-mps; the soft GPU does not.)
// CUDA_ERROR_MPS_SERVER_NOT_READY while the server has faulted or shuts down, CUDA_ERROR_MPS_CONNECTION_FAILED where
// the daemon does not answer. Blocks while the daemon starts a server.
cuda::CUresult JoinMps(SharedState& state);

}  // namespace tessera::soft
