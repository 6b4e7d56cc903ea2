// Calls that concern the order of a stream's work and pass no gate, where the vGPU has SMs of its own: their thread
// must work in these as well, or a null stream would be another one, and blocking streams keep their order with the
// legacy stream (order/legacy_order.h). Elsewhere each of these functions costs a load. Any thread.
#pragma once

#include "cuda/cuda_abi.h"
#include "shim/device/reserved_sms.h"
#include "shim/order/legacy_order.h"

namespace tessera::shim {

// That of the process. Never destroyed.
LegacyOrder& TheLegacyOrder();

// Before a call on `stream` as the program names it. `per_thread`: a null handle is the thread's own default stream
// there (the functions _ptsz). `only_waits`: the call gives the stream nothing. An error: the call must not be made.
cuda::CUresult BeforeUseInReservedSms(cuda::CUstream stream, bool per_thread, bool only_waits);
inline cuda::CUresult BeforeUse(cuda::CUstream stream, bool per_thread, bool only_waits = false) {
  if (!AnyInReservedSms()) [[likely]]
    return cuda::CUDA_SUCCESS;
  return BeforeUseInReservedSms(stream, per_thread, only_waits);
}

// The stream is about to be destroyed.
void EndBlockingStream(cuda::CUstream stream);

}  // namespace tessera::shim
