#include <errno.h>

#include "base/uncancelled.h"
#include "shim/device/current.h"
#include "shim/gate/capture.h"
#include "shim/gate/gate.h"
#include "shim/memory/operands.h"

// The one thread-local of the shim; read by the trampolines.
extern "C" {
[[gnu::visibility("hidden")]]
__attribute__((tls_model("initial-exec"))) __thread tessera::shim::Gate* tessera_thread_gate;
}

namespace tessera::shim {

using namespace cuda;

namespace {

// The gate of processes that belong to no vGPU: always open.
const std::atomic<std::uint32_t> open_epoch{1};
Gate open_gate{.epoch = &open_epoch, .accepted = 1, .budget = INT64_MAX};

bool IsCapturing(CUstream stream) {
  if (!AnyCapture()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  RelaxedCapture relaxed;
  // The legacy stream answers an error while another one captures: the driver will refuse the submission itself.
  return REAL_AS(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus*)(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

Gate* ThreadGate() { return tessera_thread_gate; }
void ForgetThreadGate() { tessera_thread_gate = nullptr; }

Attachment* CurrentAttachment() {
  CUdevice device;
  if (!Session::Instance().Managed()) return nullptr;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS) return nullptr;
  return Attachment::Of(device);
}

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  REAL_AS(cuCtxGetCurrent, CUcontext*)(&context);
  return context;
}

}  // namespace tessera::shim

// Where a trampoline goes when it may not simply pass; `call` is as in GatedCall. Returns what the submission must
// return instead of being made, or CUDA_SUCCESS.
extern "C" [[gnu::visibility("hidden")]] int tessera_gate_slow(tessera::cuda::CUstream stream,
                                                               const std::uint64_t* call) {
  using namespace tessera::shim;
  const tessera::Uncancelled uncancelled;
  const int before = errno;
  int result = tessera::cuda::CUDA_SUCCESS;
  if (!LoadReal() || !Session::Instance().Managed()) {
    tessera_thread_gate = &open_gate;
  } else {
    const tessera::cuda::CUcontext context = CurrentContext();
    if (context && !IsCapturing(stream)) {
      if (Attachment* attachment = CurrentAttachment()) {
        Gate* gate = attachment->GateOf(context);
        result = attachment->Enter(*gate);
        tessera_thread_gate = gate;
        if (result == tessera::cuda::CUDA_SUCCESS) attachment->NoteUse({call});
      } else {
        result = tessera::cuda::CUDA_ERROR_DEVICE_UNAVAILABLE;  // a GPU that none of the process's vGPUs is on
      }
    }
  }
  errno = before;
  return result;
}
