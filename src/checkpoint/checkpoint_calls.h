// The driver's calls that take a program off its GPUs and put it on GPUs again, from outside of the program.
#pragma once

#include <string>

#include "base/result.h"
#include "cuda/cuda_abi.h"
#include "wire/checkpoint.h"

namespace tessera::checkpoint {

// Member name, exported symbol, parameter types.
#define TESSERA_CHECKPOINT_FUNCTIONS(F)                                                                \
  F(Init, "cuInit", unsigned flags)                                                                    \
  F(DriverGetVersion, "cuDriverGetVersion", int* version)                                              \
  F(GetState, "cuCheckpointProcessGetState", int pid, cuda::CUprocessState* state)                     \
  F(Lock, "cuCheckpointProcessLock", int pid, cuda::CUcheckpointLockArgs* arguments)                   \
  F(Checkpoint, "cuCheckpointProcessCheckpoint", int pid, cuda::CUcheckpointCheckpointArgs* arguments) \
  F(Restore, "cuCheckpointProcessRestore", int pid, cuda::CUcheckpointRestoreArgs* arguments)          \
  F(Unlock, "cuCheckpointProcessUnlock", int pid, cuda::CUcheckpointUnlockArgs* arguments)

// The CUDA driver, initialized. It has no context, so it takes no memory of a GPU. On one thread.
class CheckpointCalls {
 public:
  // Loads the driver as cuda/find_driver.h says, for good. ENOENT: there is none. EOPNOTSUPP: it is older than 570 and
  // has no such calls. ENODEV: it has no GPU; EIO: cuInit failed otherwise.
  static Result<CheckpointCalls> Load(const std::string& path);

  // Makes one call and waits for its end, however long it takes; then asks the program's state.
  wire::CheckpointAnswer Do(const wire::CheckpointRequest& request) const;

 private:
  cuda::CUresult Call(const wire::CheckpointRequest& request) const;
  cuda::CUresult RestoreOn(const wire::CheckpointRequest& request) const;

#define F(name, symbol, ...) cuda::CUresult (*name)(__VA_ARGS__) = nullptr;
  TESSERA_CHECKPOINT_FUNCTIONS(F)
#undef F
  int version_ = 0;  // of CUDA, as cuDriverGetVersion has it
};

}  // namespace tessera::checkpoint
