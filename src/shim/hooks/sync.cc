// Waiting for work: the program sees the end of it here, and so do we.
#include "shim/device/in_call.h"
#include "shim/device/stream_use.h"
#include "shim/gate/capture.h"
#include "shim/memory/paging.h"
#include "shim/memory/pool_charges.h"

namespace tessera::shim {
namespace {

template <typename Wait>
cuda::CUresult Synchronise(Wait wait) {
  const InCall in_call;  // the driver may submit what tells it of the end
  Gate* gate = ThreadGate();
  const bool kept = gate && gate->keeper;
  if (kept) gate->keeper->BeforeSync(*gate);
  if (PendingFrees::AnyInProcess()) MarkEverywhere();
  const cuda::CUresult result = wait();
  if (kept) gate->keeper->AfterSync(*gate);
  FreeReachedEverywhere();
  ReviewPoolsThatKeep();
  return result;
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera::cuda;
using namespace tessera::shim;

TESSERA_HOOK cuCtxSynchronize() {
  (void)EnterReservedSms();  // where the program's work is, if it was moved since this thread's last
  return Synchronise([] { return REAL(cuCtxSynchronize)(); });
}

#define STREAM_SYNCHRONIZE(name, per_thread)                         \
  TESSERA_HOOK name(CUstream stream) {                               \
    return Synchronise([=] {                                         \
      const CUresult ordered = BeforeUse(stream, per_thread, true);  \
      return ordered == CUDA_SUCCESS ? REAL(name)(stream) : ordered; \
    });                                                              \
  }
STREAM_SYNCHRONIZE(cuStreamSynchronize, false)
STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz, true)

TESSERA_HOOK cuEventSynchronize(CUevent event) {
  return Synchronise([=] { return REAL(cuEventSynchronize)(event); });
}
