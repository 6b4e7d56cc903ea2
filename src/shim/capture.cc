#include "shim/capture.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "shim/hook.h"

namespace tessera::shim {

using namespace cuda;

namespace {

struct Capture {
  CUstream stream;  // where it began
  CUcontext context;
};

std::mutex mutex;
std::atomic<int> captures{0};  // as many as there are in Captures()

std::vector<Capture>& Captures() {
  static auto* all = new std::vector<Capture>;  // outlives the program's own destructors
  return *all;
}

// The legacy stream cannot capture, so null is the calling thread's own.
CUstream Named(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

void Add(CUstream stream) {
  std::lock_guard lock(mutex);
  Captures().push_back({Named(stream), CurrentContext()});
  captures.store(static_cast<int>(Captures().size()));
}

void Remove(CUstream stream) {
  std::lock_guard lock(mutex);
  auto& all = Captures();
  const auto at = std::find_if(all.begin(), all.end(), [=](const Capture& c) { return c.stream == Named(stream); });
  if (at != all.end()) all.erase(at);
  captures.store(static_cast<int>(all.size()));
}

// Beginning a capture must not race with a marker that is being placed: the driver would end the capture.
template <typename Begin>
CUresult CountedBegin(CUstream stream, Begin begin) {
  Add(stream);
  Attachment::ForEach([](Attachment& attachment) { attachment.WithoutMarkers([] {}); });
  const CUresult result = begin();
  if (result != CUDA_SUCCESS) Remove(stream);
  return result;
}

bool IsCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return REAL_AS(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus*)(Named(stream), &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// A capture that fails ends as well, but not by every error.
template <typename End>
CUresult CountedEnd(CUstream stream, End end) {
  const CUresult result = end();
  if (result == CUDA_SUCCESS || (AnyCapture() && !IsCapturing(stream))) Remove(stream);
  return result;
}

// A stream that is destroyed takes its capture along.
template <typename Destroy>
CUresult CountedDestroy(CUstream stream, Destroy destroy) {
  if (AnyCapture()) Remove(stream);
  return destroy();
}

}  // namespace

void ForgetCapturesOf(CUcontext context) {
  std::lock_guard lock(mutex);
  std::erase_if(Captures(), [=](const Capture& capture) { return capture.context == context; });
  captures.store(static_cast<int>(Captures().size()));
}

bool AnyCapture() { return captures.load(std::memory_order_acquire) > 0; }

RelaxedCapture::RelaxedCapture() : before_(CU_STREAM_CAPTURE_MODE_RELAXED) {
  REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_);
}
RelaxedCapture::~RelaxedCapture() { REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_); }

}  // namespace tessera::shim

using namespace tessera::cuda;
using namespace tessera::shim;

#define BEGIN_CAPTURE(name)                                                \
  TESSERA_HOOK name(CUstream stream, CUstreamCaptureMode mode) {           \
    return CountedBegin(stream, [&] { return REAL(name)(stream, mode); }); \
  }
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz)
BEGIN_CAPTURE(cuStreamBeginCapture_v2)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz)

// The first version had no mode.
TESSERA_HOOK cuStreamBeginCapture(CUstream stream) {
  return CountedBegin(stream, [&] { return REAL(cuStreamBeginCapture)(stream); });
}

#define BEGIN_CAPTURE_TO_GRAPH(name)                                                                                  \
  TESSERA_HOOK name(CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t n, \
                    CUstreamCaptureMode mode) {                                                                       \
    return CountedBegin(stream, [&] { return REAL(name)(stream, graph, after, edges, n, mode); });                    \
  }
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph)
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)

#define END_CAPTURE(name)                                                 \
  TESSERA_HOOK name(CUstream stream, CUgraph* graph) {                    \
    return CountedEnd(stream, [&] { return REAL(name)(stream, graph); }); \
  }
END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)

#define STREAM_DESTROY(name)                                           \
  TESSERA_HOOK name(CUstream stream) {                                 \
    return CountedDestroy(stream, [=] { return REAL(name)(stream); }); \
  }
STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)
