// The slow path of a submission that its trampoline could not let pass.
#include <errno.h>

#include "base/uncancelled.h"
#include "shim/device/current.h"
#include "shim/device/stream_use.h"
#include "shim/gate/capture.h"
#include "shim/session/session.h"
#include "shim/use/operands.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// The gate of processes that belong to no vGPU: always open.
const std::atomic<std::uint32_t> open_epoch{1};
Gate open_gate{.epoch = &open_epoch, .accepted = 1, .budget = INT64_MAX};

}  // namespace

// As tessera_gate_slow, of a process in a vGPU.
CUresult Submit(CUstream stream, const GatedCall& call) {
  for (;;) {
    if (const CUresult entered = EnterReservedSms(); entered != CUDA_SUCCESS) return entered;
    const CUcontext context = CurrentContext();
    if (!context) return CUDA_SUCCESS;  // the driver has an error for that
    Attachment* attachment = CurrentAttachment();
    if (IsCapturing(stream)) {
      // No submission: it needs no time. But the driver looks at the addresses that a copy names.
      if (attachment) attachment->AwaitMemory();
      return CUDA_SUCCESS;
    }
    GateKeeper* gates = attachment ? &attachment->Gates() : nullptr;
    Gate* gate = gates ? gates->GateOf(context) : nullptr;
    // The process has no vGPU on this GPU, or no more.
    if (!gate || !gates->Enter(*gate)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (AnyInReservedSms() && !InReservedSms()) continue;  // they moved while this thread waited
    SetThreadGate(gate);
    attachment->NoteUse(call);
    return LegacyOrder::Any() ? TheLegacyOrder().Before(stream, LegacyOrder::Use::kWork) : CUDA_SUCCESS;
  }
}

Attachment* CurrentAttachment() {
  CUdevice device;
  if (!Session::Instance().Managed()) return nullptr;
  (void)EnterReservedSms();  // before anything is made in the primary context; a submission tells of its error
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS) return nullptr;
  return Attachment::Of(device);
}

}  // namespace tessera::shim

// Called by a trampoline that could not let its submission pass; `call` is as in GatedCall. CUDA_SUCCESS: the
// submission may be made now. Else the submission is not made, and returns this error.
extern "C" [[gnu::visibility("hidden")]] int tessera_gate_slow(tessera::cuda::CUstream stream,
                                                               const std::uint64_t* call) {
  using namespace tessera::shim;
  const tessera::Uncancelled uncancelled;
  const int before = errno;
  int result = tessera::cuda::CUDA_SUCCESS;
  if (!LoadReal() || !Session::Instance().Managed()) {
    SetThreadGate(&open_gate);
  } else {
    result = Submit(stream, {call});
  }
  errno = before;
  return result;
}
