// Checkpoints of a process's GPU state, which another process asks for.
#include <algorithm>
#include <array>
#include <optional>

#include "soft/api/api.h"
#include "soft/checkpoint/checkpoint_request.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// These calls go on where the process itself is locked: it may ask for its own steps.
template <typename Function>
CUresult WithSharedState(Function&& function) {
  const CUresult state = DriverState();
  return state != CUDA_SUCCESS ? state : function(Devices().front()->state());
}

int DeviceWithUuid(const SharedState& state, const CUuuid& uuid) {
  for (int device = 0; device < state.spec().devices; ++device) {
    if (std::ranges::equal(state.Uuid(device), uuid.bytes)) return device;
  }
  return -1;
}

// Where what was on each device goes. Nothing if the pairs are no permutation of all GPUs: the driver wants each GPU
// that was checkpointed, and H200s were only tried with all of the machine (580.159.04).
std::optional<std::array<int, kMaxDevices>> TargetsOf(const SharedState& state, const CUcheckpointRestoreArgs* args) {
  std::array<int, kMaxDevices> to = {};
  const bool pairs = args != nullptr && args->gpuPairsCount != 0;
  for (int device = 0; device < kMaxDevices; ++device) to[device] = pairs ? -1 : device;
  if (!pairs) return to;
  if (args->gpuPairs == nullptr || args->gpuPairsCount != static_cast<unsigned>(state.spec().devices)) return {};
  std::array<bool, kMaxDevices> taken = {};
  for (unsigned i = 0; i < args->gpuPairsCount; ++i) {
    const int from = DeviceWithUuid(state, args->gpuPairs[i].oldUuid);
    const int target = DeviceWithUuid(state, args->gpuPairs[i].newUuid);
    if (from < 0 || target < 0 || to[from] >= 0 || taken[target]) return {};
    to[from] = target;
    taken[target] = true;
  }
  return to;
}

}  // namespace

TESSERA_CUDA_API cuCheckpointProcessGetState(int pid, CUprocessState* answer) {
  return WithSharedState([&](SharedState& state) { return CheckpointStateOf(state, pid, answer); });
}

TESSERA_CUDA_API cuCheckpointProcessGetRestoreThreadId(int pid, int* thread) {
  return WithSharedState([&](SharedState& state) { return CheckpointThreadOf(state, pid, thread); });
}

TESSERA_CUDA_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  return WithSharedState([&](SharedState& state) {
    const unsigned timeout_ms = args == nullptr ? 0 : args->timeoutMs;
    return AskForStep(state, pid, {.step = CheckpointStep::kLock, .timeout_ms = timeout_ms});
  });
}

TESSERA_CUDA_API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  return WithSharedState(
      [&](SharedState& state) { return AskForStep(state, pid, {.step = CheckpointStep::kCheckpoint}); });
}

TESSERA_CUDA_API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  return WithSharedState([&](SharedState& state) {
    const auto to = TargetsOf(state, args);
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    return AskForStep(state, pid, {.step = CheckpointStep::kRestore, .to = *to});
  });
}

TESSERA_CUDA_API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  return WithSharedState([&](SharedState& state) { return AskForStep(state, pid, {.step = CheckpointStep::kUnlock}); });
}

}  // namespace tessera::soft
