#include "shim/gate/capture.h"

#include <algorithm>
#include <atomic>

#include "base/fork_mutex.h"
#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

struct Capture {
  CUstream stream;  // where it began
  CUcontext context;
  CUgraph graph = nullptr;  // that ends with it if it fails
};

ForkMutex captures_mutex;
std::atomic<int> captures{0};  // as many as there are in Captures()

std::vector<Capture>& Captures() TESSERA_REQUIRES(captures_mutex) {
  static auto* all = new std::vector<Capture>;  // outlives the program's own destructors
  return *all;
}

std::vector<Capture>::iterator Find(CUstream stream) TESSERA_REQUIRES(captures_mutex) {
  return std::ranges::find(Captures(), stream, &Capture::stream);
}

}  // namespace

void AddCapture(CUstream stream, CUcontext context) {
  const MutexLock lock(captures_mutex);
  Captures().push_back({.stream = stream, .context = context});
  captures.store(static_cast<int>(Captures().size()));
}

void NoteCapturedGraph(CUstream stream, CUgraph graph) {
  const MutexLock lock(captures_mutex);
  if (const auto at = Find(stream); at != Captures().end()) at->graph = graph;
}

CUgraph CapturedGraph(CUstream stream) {
  const MutexLock lock(captures_mutex);
  const auto at = Find(stream);
  return at != Captures().end() ? at->graph : nullptr;
}

void RemoveCapture(CUstream stream) {
  const MutexLock lock(captures_mutex);
  auto& all = Captures();
  if (const auto at = Find(stream); at != all.end()) all.erase(at);
  captures.store(static_cast<int>(all.size()));
}

std::vector<CUgraph> ForgetCapturesOf(CUcontext context) {
  std::vector<CUgraph> graphs;
  const MutexLock lock(captures_mutex);
  std::erase_if(Captures(), [&](const Capture& capture) {
    if (capture.context == context && capture.graph) graphs.push_back(capture.graph);
    return capture.context == context;
  });
  captures.store(static_cast<int>(Captures().size()));
  return graphs;
}

bool AnyCapture() { return captures.load() > 0; }

bool IsCapturing(CUstream stream) {
  if (!AnyCapture()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const RelaxedCapture relaxed;
  return REAL_AS(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus*)(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

RelaxedCapture::RelaxedCapture() : before_(CU_STREAM_CAPTURE_MODE_RELAXED) {
  REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_);
}
RelaxedCapture::~RelaxedCapture() { REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_); }

}  // namespace tessera::shim
