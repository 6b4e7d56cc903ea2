// Streams and events: made, asked, and put in order. Where the vGPU has SMs of its own, the driver knows no blocking
// streams, and the shim keeps their order (order/legacy_order.h).
#include "shim/device/in_call.h"
#include "shim/device/stream_use.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// The driver may wait for the GPU when it makes one.
template <typename Make>
CUresult StreamMade(CUstream* stream, unsigned flags, Make make) {
  const InCall in_call;
  if (!HasReservedSms()) return make();
  CUresult result = PinReservedSms();
  if (result == CUDA_SUCCESS) {
    const bool ordered = !(flags & CU_STREAM_NON_BLOCKING) && InReservedSms();
    result = ordered ? TheLegacyOrder().MakeStream(stream, make) : make();
  }
  if (result != CUDA_SUCCESS) UnpinReservedSms();
  return result;
}

// What the program asked for when it made the stream, and not what it got.
CUresult Flags(CUresult result, CUstream stream, unsigned* flags) {
  if (result == CUDA_SUCCESS && LegacyOrder::Any() && TheLegacyOrder().Has(stream))
    *flags &= ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING);
  return result;
}

// False: the driver's own answer is right.
bool AsksForOrder(CUstream stream, bool per_thread) {
  return AnyInReservedSms() && EnterReservedSms() == CUDA_SUCCESS && LegacyOrder::Any() && (stream || !per_thread);
}

}  // namespace

TESSERA_HOOK cuStreamCreate(CUstream* stream, unsigned flags) {
  return StreamMade(stream, flags, [=] { return REAL(cuStreamCreate)(stream, flags); });
}

TESSERA_HOOK cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return StreamMade(stream, flags, [=] { return REAL(cuStreamCreateWithPriority)(stream, flags, priority); });
}

#define GET_FLAGS(name) \
  TESSERA_HOOK name(CUstream stream, unsigned* flags) { return Flags(REAL(name)(stream, flags), stream, flags); }
GET_FLAGS(cuStreamGetFlags)
GET_FLAGS(cuStreamGetFlags_ptsz)

#define QUERY(name, per_thread)                                                                              \
  TESSERA_HOOK name(CUstream stream) {                                                                       \
    if (AsksForOrder(stream, per_thread)) return TheLegacyOrder().Query(stream ? stream : CU_STREAM_LEGACY); \
    return REAL(name)(stream);                                                                               \
  }
QUERY(cuStreamQuery, false)
QUERY(cuStreamQuery_ptsz, true)

#define USE(name, per_thread, parameters, ...)                                                        \
  TESSERA_HOOK name parameters {                                                                      \
    if (const CUresult result = BeforeUse(stream, per_thread); result != CUDA_SUCCESS) return result; \
    return REAL(name)(__VA_ARGS__);                                                                   \
  }
USE(cuStreamWaitEvent, false, (CUstream stream, CUevent event, unsigned flags), stream, event, flags)
USE(cuStreamWaitEvent_ptsz, true, (CUstream stream, CUevent event, unsigned flags), stream, event, flags)
USE(cuEventRecord, false, (CUevent event, CUstream stream), event, stream)
USE(cuEventRecord_ptsz, true, (CUevent event, CUstream stream), event, stream)
USE(cuEventRecordWithFlags, false, (CUevent event, CUstream stream, unsigned flags), event, stream, flags)
USE(cuEventRecordWithFlags_ptsz, true, (CUevent event, CUstream stream, unsigned flags), event, stream, flags)
