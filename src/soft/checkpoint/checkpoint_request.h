// How one process asks another for the steps of a checkpoint: by words in the shared state, which a thread of the other
// one waits for and answers.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

enum class CheckpointStep : std::uint32_t { kLock, kCheckpoint, kRestore, kUnlock };

struct CheckpointRequest {
  CheckpointStep step = CheckpointStep::kLock;
  std::uint32_t timeout_ms = 0;          // of the lock; 0: none
  std::array<int, kMaxDevices> to = {};  // of the restore: the device that takes what was on each device
};

// Asks the process `pid` and waits for the answer, behind others who ask it. CUDA_ERROR_INVALID_VALUE if no living
// process of this number uses the driver, or it ends meanwhile. From any process and thread, but not from the thread
// that answers.
cuda::CUresult AskForStep(SharedState& state, pid_t pid, const CheckpointRequest& request);

// Likewise, without waiting for it.
cuda::CUresult CheckpointStateOf(SharedState& state, pid_t pid, cuda::CUprocessState* answer);
// The number of the thread that answers, in the PID namespace of its process.
cuda::CUresult CheckpointThreadOf(SharedState& state, pid_t pid, int* thread);

// What others ask this process for. Of the one thread that answers.
class CheckpointInbox {
 public:
  // From now on, others find the process.
  explicit CheckpointInbox(SharedState& state);

  // The next request, if one comes within `most`; 0: however long it takes. Each wants an Answer.
  std::optional<CheckpointRequest> Await(Nanos most);
  // Who asked still lives, and waits.
  bool AskerLives() const;
  void SetState(cuda::CUprocessState now);
  cuda::CUprocessState state() const;
  void Answer(cuda::CUresult result);

 private:
  SharedState& shared_;
  std::uint32_t asked_ = 0;  // the request that is being answered
};

}  // namespace tessera::soft
