#include "shim/capture.h"

#include <atomic>

#include "shim/hook.h"

namespace tessera::shim {

using namespace cuda;

namespace {
std::atomic<int> captures{0};

// Beginning a capture must not race with a marker that is being placed: one that lands in the capture would become part
// of the program's graph.
template <typename Begin>
CUresult CountedBegin(Begin begin) {
  captures.fetch_add(1);
  Attachment::ForEach([](Attachment& attachment) { attachment.WithoutMarkers([] {}); });
  const CUresult result = begin();
  if (result != CUDA_SUCCESS) captures.fetch_sub(1);
  return result;
}

template <typename End>
CUresult CountedEnd(End end) {
  const CUresult result = end();
  // An invalidated capture ends with an error; a stream that was not capturing has nothing to end.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
    int count = captures.load();
    while (count > 0 && !captures.compare_exchange_weak(count, count - 1)) {
    }
  }
  return result;
}
}  // namespace

bool AnyCapture() { return captures.load(std::memory_order_acquire) > 0; }

RelaxedCapture::RelaxedCapture() : before_(CU_STREAM_CAPTURE_MODE_RELAXED) {
  REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_);
}
RelaxedCapture::~RelaxedCapture() { REAL_AS(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode*)(&before_); }

}  // namespace tessera::shim

using namespace tessera::cuda;
using namespace tessera::shim;

#define BEGIN_CAPTURE(name)                                        \
  TESSERA_HOOK name(CUstream stream, CUstreamCaptureMode mode) {   \
    return CountedBegin([&] { return REAL(name)(stream, mode); }); \
  }
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz)
BEGIN_CAPTURE(cuStreamBeginCapture_v2)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz)

// The first version had no mode.
TESSERA_HOOK cuStreamBeginCapture(CUstream stream) {
  return CountedBegin([&] { return REAL(cuStreamBeginCapture)(stream); });
}

#define BEGIN_CAPTURE_TO_GRAPH(name)                                                                                  \
  TESSERA_HOOK name(CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges, size_t n, \
                    CUstreamCaptureMode mode) {                                                                       \
    return CountedBegin([&] { return REAL(name)(stream, graph, after, edges, n, mode); });                            \
  }
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph)
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)

#define END_CAPTURE(name)                                         \
  TESSERA_HOOK name(CUstream stream, CUgraph* graph) {            \
    return CountedEnd([&] { return REAL(name)(stream, graph); }); \
  }
END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)
