#include "shim/gate/markers.h"

#include <algorithm>

#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/process/say.h"

namespace tessera::shim {

using namespace cuda;

// False: the context has failed and takes no marker, or the driver has no markers at all.
bool Markers::Record(Marker& marker) {
  if (!marker.event &&
      REAL_AS(cuEventCreate, CUevent*, unsigned)(&marker.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    marker.event = nullptr;
    return false;
  }
  const CUresult recorded = REAL_AS(cuCtxRecordEvent, CUcontext, CUevent)(gate_.context, marker.event);
  if (recorded == CUDA_ERROR_SHARED_OBJECT_INIT_FAILED || recorded == CUDA_ERROR_NOT_SUPPORTED) {
    unusable_ = true;
    Say("this driver cannot tell when work has ended (cuCtxRecordEvent, error %d), so this program's time is "
        "limited only coarsely; use driver 555 or newer",
        recorded);
  }
  return recorded == CUDA_SUCCESS;
}

void Markers::Place(Nanos now, bool learn) {
  if (AnyCapture()) return;
  if (next_ - first_ == kRing) return;  // again later
  const std::int64_t count = gate_.Submitted();
  Marker& marker = ring_[next_ % kRing];
  const RelaxedCapture relaxed;
  if (!unusable_ && Record(marker)) {
    marker.count = count;
    marker.submitted = now;
    marker.work_since = count > last_count_ ? last_placed_ : 0;
    marker.learn = learn;
    ++next_;
  }
  // Also if the driver refused the marker: work of a failed context counts as ended, so that no thread waits for it.
  last_count_ = count;
  last_placed_ = now;
}

void Markers::Observe(Nanos now, Nanos target) {
  if (AnyPending()) {
    const RelaxedCapture relaxed;
    for (; AnyPending(); ++first_) {
      const Marker& marker = ring_[first_ % kRing];
      const CUresult state = REAL_AS(cuEventQuery, CUevent)(marker.event);
      if (state == CUDA_ERROR_NOT_READY) return;
      // Any other error is the context's: its GPU does nothing any more.
      if (marker.learn && state == CUDA_SUCCESS)
        window_.OnMarker(marker.submitted, now - marker.submitted, target, limited_);
      limited_ = false;
      finished_ = marker.count;
      last_reached_ = now;
      youngest_reached_ = std::max(youngest_reached_, marker.work_since);
    }
  }
  finished_ = std::max(finished_, last_count_);
}

void Markers::Reset() {
  for (Marker& marker : ring_) marker.event = nullptr;
  first_ = next_ = 0;
  finished_ = last_count_ = gate_.Submitted();
  window_ = {};
}

}  // namespace tessera::shim
