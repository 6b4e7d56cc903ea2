#include "shim/gate/capture.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

struct Capture {
  CUstream stream;  // where it began
  CUcontext context;
};

ForkMutex mutex;
std::atomic<int> captures{0};  // as many as there are in Captures()

std::vector<Capture>& Captures() TESSERA_REQUIRES(mutex) {
  static auto* all = new std::vector<Capture>;  // outlives the program's own destructors
  return *all;
}

}  // namespace

void AddCapture(CUstream stream, CUcontext context) {
  const MutexLock lock(mutex);
  Captures().push_back({stream, context});
  captures.store(static_cast<int>(Captures().size()));
}

void RemoveCapture(CUstream stream) {
  const MutexLock lock(mutex);
  auto& all = Captures();
  const auto at = std::find_if(all.begin(), all.end(), [=](const Capture& c) { return c.stream == stream; });
  if (at != all.end()) all.erase(at);
  captures.store(static_cast<int>(all.size()));
}

void ForgetCapturesOf(CUcontext context) {
  const MutexLock lock(mutex);
  std::erase_if(Captures(), [=](const Capture& capture) { return capture.context == context; });
  captures.store(static_cast<int>(Captures().size()));
}

bool AnyCapture() { return captures.load(std::memory_order_acquire) > 0; }

RelaxedCapture::RelaxedCapture() : before_(CU_STREAM_CAPTURE_MODE_RELAXED) {
  REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_);
}
RelaxedCapture::~RelaxedCapture() { REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_); }

}  // namespace tessera::shim
