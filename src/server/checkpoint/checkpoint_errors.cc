#include "server/checkpoint/checkpoint_errors.h"

#include <fmt/format.h>

#include <string>

#include "cuda/abi_checkpoint.h"
#include "cuda/errors.h"

namespace tessera::server {

using wire::CheckpointOperation;

namespace {

const char* VerbOf(CheckpointOperation operation) {
  switch (operation) {
    case CheckpointOperation::kState:
      return "ask for the state of";
    case CheckpointOperation::kLock:
      return "lock";
    case CheckpointOperation::kCheckpoint:
      return "checkpoint";
    case CheckpointOperation::kRestore:
      return "restore";
    case CheckpointOperation::kUnlock:
      return "unlock";
  }
  return "treat";
}

const char* StateInWords(std::int32_t state) {
  switch (state) {
    case cuda::CU_PROCESS_STATE_RUNNING:
      return "it runs";
    case cuda::CU_PROCESS_STATE_LOCKED:
      return "it is locked";
    case cuda::CU_PROCESS_STATE_CHECKPOINTED:
      return "it is checkpointed";
    default:
      return "it is in another state";
  }
}

std::string NameOf(cuda::CUresult result) {
  const char* name = cuda::ResultName(result);
  return name != nullptr ? name : "CUDA error " + std::to_string(result);
}

// What, and what to do about it.
struct Reason {
  int code;
  std::string what;
  const char* hint;
};

Reason ReasonOf(const wire::CheckpointRequest& request, cuda::CUresult result, std::int32_t state) {
  const bool restores = request.operation == CheckpointOperation::kRestore;
  switch (result) {
    case cuda::CUDA_ERROR_INVALID_VALUE:
      if (state == wire::kUnknownState)
        return {ESRCH, "the driver knows no such program", "it has ended, or has not used CUDA yet"};
      if (restores)
        return {EINVAL, "the driver does not take these GPUs", "a program moves between GPUs of one type only"};
      break;
    case cuda::CUDA_ERROR_ILLEGAL_STATE:
      return {EINVAL, StateInWords(state), "ask for its state, and go on from there"};
    case cuda::CUDA_ERROR_NOT_READY:
      return {EBUSY, fmt::format("its work did not end within {:g} s", request.timeout_ms / 1000.0),
              "try again when it has less work queued"};
    case cuda::CUDA_ERROR_NOT_SUPPORTED:
      return {EOPNOTSUPP, "the driver cannot checkpoint this program",
              "programs with managed memory, or with memory of other processes, stay where they are"};
    case cuda::CUDA_ERROR_OUT_OF_MEMORY:
      if (restores) return {ENOMEM, "the GPU has not enough free memory", "free some, or restore it on another GPU"};
      return {ENOMEM, "there is not enough host memory for what it has on its GPU", "free some"};
    case cuda::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
      return {EOPNOTSUPP, "this driver restores programs only where they were",
              "move programs with driver 580 or newer"};
    case cuda::CUDA_ERROR_NOT_PERMITTED:
      return {EACCES, "the driver does not permit it", "run tesserad as root, or as the user of the program"};
    default:
      break;
  }
  const char* text = cuda::ResultText(result);
  return {EIO, NameOf(result) + (text != nullptr ? std::string(", ") + text : ""), ""};
}

}  // namespace

std::string CannotDo(const wire::CheckpointRequest& request) {
  return fmt::format("cannot {} program {}", VerbOf(request.operation), request.pid);
}

Result<void> MeaningOf(const wire::CheckpointRequest& request, const wire::CheckpointAnswer& answer) {
  const auto result = static_cast<cuda::CUresult>(answer.result);
  if (result == cuda::CUDA_SUCCESS) return {};
  if (answer.state == cuda::CU_PROCESS_STATE_FAILED)
    return Fail(ENOTRECOVERABLE, fmt::format("{}: it is lost ({})", CannotDo(request), NameOf(result)),
                "end it, and start it again");
  const Reason reason = ReasonOf(request, result, answer.state);
  return Fail(reason.code, fmt::format("{}: {}", CannotDo(request), reason.what), reason.hint);
}

}  // namespace tessera::server
