#include "checkpoint/checkpoint_calls.h"

#include <cstring>

#include "base/clock.h"
#include "cuda/errors.h"
#include "cuda/find_driver.h"

namespace tessera::checkpoint {

using wire::CheckpointOperation;

namespace {

// The first CUDA whose restore takes gpuPairs (driver 580). In earlier ones these bytes are reserved.
constexpr int kFirstWithPairs = 13000;

cuda::CUuuid UuidOf(const wire::Uuid& uuid) {
  cuda::CUuuid its;
  static_assert(sizeof its == sizeof uuid.bytes);
  std::memcpy(&its, uuid.bytes, sizeof its);
  return its;
}

}  // namespace

Result<CheckpointCalls> CheckpointCalls::Load(const std::string& path) {
  std::string why;
  void* const library = cuda::OpenDriver(path, why);
  if (library == nullptr) return Fail(ENOENT, why, "install NVIDIA's driver");
  CheckpointCalls calls;
#define F(name, symbol, ...)                                                   \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(library, symbol)); \
  if (calls.name == nullptr)                                                   \
    return Fail(EOPNOTSUPP, "the CUDA driver has no function " symbol, "programs move with driver 570 or newer");
  TESSERA_CHECKPOINT_FUNCTIONS(F)
#undef F
  if (const cuda::CUresult result = calls.Init(0); result != cuda::CUDA_SUCCESS) {
    const char* name = cuda::ResultName(result);
    return Fail(result == cuda::CUDA_ERROR_NO_DEVICE ? ENODEV : EIO,
                std::string("cuInit: ") + (name != nullptr ? name : "error " + std::to_string(result)),
                "nvidia-smi tells whether the driver works");
  }
  (void)calls.DriverGetVersion(&calls.version_);
  return calls;
}

wire::CheckpointAnswer CheckpointCalls::Do(const wire::CheckpointRequest& request) const {
  wire::CheckpointAnswer answer = {
      .type = wire::CheckpointAnswerType::kDone, .operation = request.operation, .pid = request.pid};
  cuda::CUprocessState state{};
  const Nanos begin = MonotonicNow();
  const bool asks = request.operation == CheckpointOperation::kState;
  answer.result = asks ? GetState(request.pid, &state) : Call(request);
  answer.took_ns = MonotonicNow() - begin;
  const cuda::CUresult known = asks ? cuda::CUresult{answer.result} : GetState(request.pid, &state);
  if (known == cuda::CUDA_SUCCESS) answer.state = state;
  return answer;
}

cuda::CUresult CheckpointCalls::Call(const wire::CheckpointRequest& request) const {
  switch (request.operation) {
    case CheckpointOperation::kLock: {
      cuda::CUcheckpointLockArgs arguments{};
      arguments.timeoutMs = request.timeout_ms;
      return Lock(request.pid, &arguments);
    }
    case CheckpointOperation::kCheckpoint: {
      cuda::CUcheckpointCheckpointArgs arguments{};
      return Checkpoint(request.pid, &arguments);
    }
    case CheckpointOperation::kRestore:
      return RestoreOn(request);
    case CheckpointOperation::kUnlock: {
      cuda::CUcheckpointUnlockArgs arguments{};
      return Unlock(request.pid, &arguments);
    }
    case CheckpointOperation::kState:
      break;
  }
  return cuda::CUDA_ERROR_INVALID_VALUE;
}

cuda::CUresult CheckpointCalls::RestoreOn(const wire::CheckpointRequest& request) const {
  cuda::CUcheckpointGpuPair pairs[wire::kMostGpuPairs];
  for (std::uint32_t i = 0; i < request.pair_count; ++i)
    pairs[i] = {.oldUuid = UuidOf(request.pairs[i].from), .newUuid = UuidOf(request.pairs[i].to)};
  cuda::CUcheckpointRestoreArgs arguments{};
  if (request.pair_count > 0) {
    if (version_ < kFirstWithPairs) return cuda::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    arguments.gpuPairs = pairs;
    arguments.gpuPairsCount = request.pair_count;
  }
  return Restore(request.pid, &arguments);
}

}  // namespace tessera::checkpoint
