#include "soft/checkpoint/checkpoint_service.h"

#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>

#include "base/fault.h"
#include "soft/checkpoint/checkpoint_request.h"
#include "soft/checkpoint/checkpoint_settings.h"
#include "soft/checkpoint/device_contents.h"
#include "soft/device/api_gate.h"
#include "soft/device/context.h"
#include "soft/exec/engine.h"
#include "soft/shared/arbiter.h"
#include "soft/shared/mps_servers.h"
#include "soft/shared/wait.h"

namespace tessera::soft {
namespace {

using namespace cuda;

constexpr Nanos kLookAgain = 100 * kMicrosecond;
constexpr Nanos kLookForDescriptors = 200 * kMillisecond;

// What $TESSERA_SOFT_CHECKPOINT says; nothing, and a word to whoever looks at the terminal, if it is wrong.
CheckpointSettings ReadCheckpointSettings() {
  const char* text = std::getenv("TESSERA_SOFT_CHECKPOINT");
  auto settings = ParseCheckpointSettings(text == nullptr ? "" : text);
  if (settings) return *settings;
  std::fprintf(stderr, "tessera %s\n", settings.error().Text().c_str());
  return {};
}

// All that was queued has ended, and nobody waits for a turn any more.
bool AllWorkEnded(SharedState& state) {
  for (Context* context : Context::AllOpen()) {
    if (!context->engine().Idle() || HasTurns(state, context->device().shared_index())) return false;
  }
  return true;
}

// The steps, in this process. Of the service's thread.
class CheckpointService {
 public:
  explicit CheckpointService(SharedState& state)
      : state_(state), contents_(state), settings_(ReadCheckpointSettings()), inbox_(state) {}

  [[noreturn]] void Serve() {
    for (;;) {
      const Nanos most = contents_.ForgetLeftBehind() ? 0 : kLookForDescriptors;
      if (const auto request = inbox_.Await(most)) inbox_.Answer(Do(*request));
    }
  }

 private:
  CUresult Do(const CheckpointRequest& request) {
    const auto needs = [this](CUprocessState state) { return inbox_.state() == state; };
    switch (request.step) {
      case CheckpointStep::kLock:
        return needs(CU_PROCESS_STATE_RUNNING) ? Lock(request.timeout_ms) : CUDA_ERROR_ILLEGAL_STATE;
      case CheckpointStep::kCheckpoint:
        return needs(CU_PROCESS_STATE_LOCKED) ? Checkpoint() : CUDA_ERROR_ILLEGAL_STATE;
      case CheckpointStep::kRestore:
        return needs(CU_PROCESS_STATE_CHECKPOINTED) ? Restore(request) : CUDA_ERROR_ILLEGAL_STATE;
      case CheckpointStep::kUnlock:
        return needs(CU_PROCESS_STATE_LOCKED) ? Unlock() : CUDA_ERROR_ILLEGAL_STATE;
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

  // Calls that come later wait; those inside and the work that they gave have to end first. Given up, and the process
  // runs, if that takes too long or who wants it has ended.
  CUresult Lock(std::uint32_t timeout_ms) {
    if (IsMpsClient(state_)) return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult made_up = Pretend(CheckpointStep::kLock); made_up != CUDA_SUCCESS) return made_up;
    const Nanos begin = MonotonicNow();
    const Nanos deadline = begin + timeout_ms * kMillisecond;
    ApiCall::Close();
    // No context comes or goes while no call is inside.
    while (ApiCall::Inside() != 0 || !AllWorkEnded(state_)) {
      const bool late = timeout_ms != 0 && MonotonicNow() >= deadline;
      if (late || !inbox_.AskerLives()) {
        ApiCall::Open();
        return CUDA_ERROR_NOT_READY;
      }
      WaitUntil(MonotonicNow() + kLookAgain);
    }
    Last(CheckpointStep::kLock, begin, 0);
    inbox_.SetState(CU_PROCESS_STATE_LOCKED);
    PassFault("soft.locked");
    return CUDA_SUCCESS;
  }

  CUresult Checkpoint() {
    if (const CUresult made_up = Pretend(CheckpointStep::kCheckpoint); made_up != CUDA_SUCCESS) return made_up;
    // The driver does not try to keep such a process in a good state.
    if (DeviceContents::HasWhatEndsCheckpoint()) return Lose(CUDA_ERROR_NOT_SUPPORTED);
    const Nanos begin = MonotonicNow();
    ends_restore_ = DeviceContents::WhatEndsRestore();
    if (const CUresult taken = contents_.TakeOff(); taken != CUDA_SUCCESS) return taken;
    Last(CheckpointStep::kCheckpoint, begin, contents_.bytes());
    PassFault("soft.checkpoint.taken");
    ApiCall::SetSaved(true);
    inbox_.SetState(CU_PROCESS_STATE_CHECKPOINTED);
    PassFault("soft.checkpointed");
    return CUDA_SUCCESS;
  }

  CUresult Restore(const CheckpointRequest& request) {
    if (const CUresult made_up = Pretend(CheckpointStep::kRestore); made_up != CUDA_SUCCESS) return made_up;
    if (ends_restore_ != CUDA_SUCCESS) return Lose(ends_restore_);
    const Nanos begin = MonotonicNow();
    const std::uint64_t bytes = contents_.bytes();
    if (const CUresult put = contents_.PutOn(request.to); put != CUDA_SUCCESS) return put;
    Last(CheckpointStep::kRestore, begin, bytes);
    PassFault("soft.restore.put");
    ApiCall::SetSaved(false);
    inbox_.SetState(CU_PROCESS_STATE_LOCKED);
    PassFault("soft.restored");
    return CUDA_SUCCESS;
  }

  CUresult Unlock() {
    if (const CUresult made_up = Pretend(CheckpointStep::kUnlock); made_up != CUDA_SUCCESS) return made_up;
    Last(CheckpointStep::kUnlock, MonotonicNow(), 0);
    inbox_.SetState(CU_PROCESS_STATE_RUNNING);
    ApiCall::Open();
    return CUDA_SUCCESS;
  }

  // The failure that a test wants of this step.
  CUresult Pretend(CheckpointStep step) {
    StepSettings& settings = settings_[step];
    const CUresult error = settings.error;
    if (error == CUDA_SUCCESS) return CUDA_SUCCESS;
    if (!settings.always) settings.error = CUDA_SUCCESS;
    return settings.lost ? Lose(error) : error;
  }

  // The time that a test wants of this step.
  void Last(CheckpointStep step, Nanos begin, std::uint64_t bytes) {
    const StepSettings& settings = settings_[step];
    Nanos time = settings.time;
    if (settings.bytes_per_second != 0) {
      const double seconds = static_cast<double>(bytes) / static_cast<double>(settings.bytes_per_second);
      time += static_cast<Nanos>(seconds * kSecond);
    }
    if (time != 0) WaitUntil(begin + time);
  }

  // All calls fail from now on, those that wait included.
  CUresult Lose(CUresult error) {
    LoseDriver(error);
    inbox_.SetState(CU_PROCESS_STATE_FAILED);
    ApiCall::Open();
    return error;
  }

  SharedState& state_;
  DeviceContents contents_;
  CheckpointSettings settings_;
  CheckpointInbox inbox_;
  CUresult ends_restore_ = CUDA_SUCCESS;  // of the last checkpoint
};

}  // namespace

void StartCheckpointService(SharedState& state) {
  std::latch found(1);
  StartWithoutSignals([&] {
    auto* const service = new CheckpointService(state);  // never destroyed, as nothing that the process shares
    found.count_down();
    service->Serve();
  }).detach();
  found.wait();
}

}  // namespace tessera::soft
