#include "server/checkpoint/checkpoint_errors.h"

#include <gtest/gtest.h>

#include "cuda/abi_checkpoint.h"

namespace tessera::server {
namespace {

using Call = wire::CheckpointOperation;

struct Case {
  Call operation;
  cuda::CUresult result;
  std::int32_t state;
  int code;
  std::string text;
};

TEST(CheckpointErrors, SayWhatIsWrongAndWhatToDo) {
  const Case cases[] = {
      {Call::kState, cuda::CUDA_ERROR_INVALID_VALUE, wire::kUnknownState, ESRCH,
       "cannot ask for the state of program 7: the driver knows no such program; it has ended, or has not used CUDA "
       "yet"},
      {Call::kLock, cuda::CUDA_ERROR_NOT_READY, cuda::CU_PROCESS_STATE_RUNNING, EBUSY,
       "cannot lock program 7: its work did not end within 2.5 s; try again when it has less work queued"},
      {Call::kLock, cuda::CUDA_ERROR_ILLEGAL_STATE, cuda::CU_PROCESS_STATE_CHECKPOINTED, EINVAL,
       "cannot lock program 7: it is checkpointed; ask for its state, and go on from there"},
      {Call::kCheckpoint, cuda::CUDA_ERROR_NOT_SUPPORTED, cuda::CU_PROCESS_STATE_LOCKED, EOPNOTSUPP,
       "cannot checkpoint program 7: the driver cannot checkpoint this program; programs with managed memory, or with "
       "memory of other processes, stay where they are"},
      {Call::kCheckpoint, cuda::CUDA_ERROR_OUT_OF_MEMORY, cuda::CU_PROCESS_STATE_LOCKED, ENOMEM,
       "cannot checkpoint program 7: there is not enough host memory for what it has on its GPU; free some"},
      {Call::kRestore, cuda::CUDA_ERROR_OUT_OF_MEMORY, cuda::CU_PROCESS_STATE_CHECKPOINTED, ENOMEM,
       "cannot restore program 7: the GPU has not enough free memory; free some, or restore it on another GPU"},
      {Call::kRestore, cuda::CUDA_ERROR_INVALID_VALUE, cuda::CU_PROCESS_STATE_CHECKPOINTED, EINVAL,
       "cannot restore program 7: the driver does not take these GPUs; a program moves between GPUs of one type only"},
      {Call::kRestore, cuda::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, cuda::CU_PROCESS_STATE_CHECKPOINTED, EOPNOTSUPP,
       "cannot restore program 7: this driver restores programs only where they were; move programs with driver 580 or "
       "newer"},
      {Call::kRestore, cuda::CUDA_ERROR_UNKNOWN, cuda::CU_PROCESS_STATE_FAILED, ENOTRECOVERABLE,
       "cannot restore program 7: it is lost (CUDA_ERROR_UNKNOWN); end it, and start it again"},
      {Call::kUnlock, cuda::CUDA_ERROR_NOT_PERMITTED, wire::kUnknownState, EACCES,
       "cannot unlock program 7: the driver does not permit it; run tesserad as root, or as the user of the program"},
      {Call::kUnlock, static_cast<cuda::CUresult>(12345), cuda::CU_PROCESS_STATE_LOCKED, EIO,
       "cannot unlock program 7: CUDA error 12345"},
  };
  for (const Case& each : cases) {
    const auto meaning = MeaningOf({.operation = each.operation, .pid = 7, .timeout_ms = 2500},
                                   {.operation = each.operation, .result = each.result, .state = each.state});
    ASSERT_FALSE(meaning) << each.text;
    EXPECT_EQ(meaning.error().code, each.code) << each.text;
    EXPECT_EQ(meaning.error().Text(), each.text);
  }
  EXPECT_TRUE(MeaningOf({.operation = Call::kLock}, {.result = cuda::CUDA_SUCCESS}));
}

}  // namespace
}  // namespace tessera::server
