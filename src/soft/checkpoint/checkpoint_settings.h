// What $TESSERA_SOFT_CHECKPOINT says about the checkpoints of the process that has it.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "cuda/cuda_abi.h"
#include "soft/checkpoint/checkpoint_request.h"

namespace tessera::soft {

// How one step goes.
struct StepSettings {
  Nanos time = 0;                             // that it takes at least
  std::uint64_t bytes_per_second = 0;         // and for each byte on devices; 0: no time
  cuda::CUresult error = cuda::CUDA_SUCCESS;  // what it fails with
  bool always = false;                        // else the first one only
  bool lost = false;                          // the failure is the process's end on GPUs: CU_PROCESS_STATE_FAILED
};

using CheckpointSettings = std::map<CheckpointStep, StepSettings>;

// Parses items with commas between them, of a step (lock, checkpoint, restore, unlock) each:
//   STEP=TIME[+SIZE/s]             as in checkpoint=300ms+2GB/s
//   STEP=ERROR[:always][:lost]     as in restore=CUDA_ERROR_OUT_OF_MEMORY:always
// Text without an item is no setting. EINVAL for what is neither.
Result<CheckpointSettings> ParseCheckpointSettings(std::string_view text);

}  // namespace tessera::soft
