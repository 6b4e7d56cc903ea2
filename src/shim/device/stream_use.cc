#include "shim/device/stream_use.h"

#include "shim/device/attachment.h"

namespace tessera::shim {

using namespace cuda;

LegacyOrder& TheLegacyOrder() {
  static auto* order = new LegacyOrder(
      [](bool each) { Attachment::ForEach([each](Attachment& attachment) { attachment.Gates().SeeEach(each); }); });
  return *order;
}

CUresult BeforeUseInReservedSms(CUstream stream, bool per_thread, bool only_waits) {
  if (const CUresult entered = EnterReservedSms(); entered != CUDA_SUCCESS) return entered;
  if (!stream) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (!LegacyOrder::Any()) return CUDA_SUCCESS;
  return TheLegacyOrder().Before(stream, only_waits ? LegacyOrder::Use::kWait : LegacyOrder::Use::kWork);
}

void EndBlockingStream(CUstream stream) {
  if (!LegacyOrder::Any()) return;
  (void)EnterReservedSms();  // the stream ends in any case
  TheLegacyOrder().EndStream(stream);
}

}  // namespace tessera::shim
