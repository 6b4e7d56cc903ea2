// Waiting for work: the program sees the end of it here, and so do we.
#include "shim/device/in_call.h"
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
  return Synchronise([] { return REAL(cuCtxSynchronize)(); });
}

#define STREAM_SYNCHRONIZE(name)                            \
  TESSERA_HOOK name(CUstream stream) {                      \
    return Synchronise([=] { return REAL(name)(stream); }); \
  }
STREAM_SYNCHRONIZE(cuStreamSynchronize)
STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz)

TESSERA_HOOK cuEventSynchronize(CUevent event) {
  return Synchronise([=] { return REAL(cuEventSynchronize)(event); });
}
