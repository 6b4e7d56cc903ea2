// Types of the checkpoint calls (CUDA 12.8; gpuPairs since 13.0).
#pragma once

#include "cuda/abi_types.h"

namespace tessera::cuda {

enum CUprocessState : int {
  CU_PROCESS_STATE_RUNNING = 0,
  CU_PROCESS_STATE_LOCKED = 1,
  CU_PROCESS_STATE_CHECKPOINTED = 2,
  CU_PROCESS_STATE_FAILED = 3,
};

struct CUcheckpointLockArgs {
  unsigned timeoutMs;
  unsigned reserved0;
  std::uint64_t reserved1[7];
};

struct CUcheckpointCheckpointArgs {
  std::uint64_t reserved[8];
};

struct CUcheckpointGpuPair {
  CUuuid oldUuid;
  CUuuid newUuid;
};

struct CUcheckpointRestoreArgs {
  CUcheckpointGpuPair* gpuPairs;
  unsigned gpuPairsCount;
  char reserved[44];
  std::uint64_t reserved1;
};

struct CUcheckpointUnlockArgs {
  std::uint64_t reserved[8];
};

}  // namespace tessera::cuda
