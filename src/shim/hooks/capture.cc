// Beginning and end of stream captures, which the shim counts.
#include "shim/gate/capture.h"

#include "shim/device/current.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// The legacy stream cannot capture, so null is the calling thread's own.
CUstream Named(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

// Beginning a capture must not race with a marker that is being placed, or a mark behind frees: the driver would end
// the capture, or take the mark for a part of it.
template <typename Begin>
CUresult CountedBegin(CUstream stream, Begin begin) {
  AddCapture(Named(stream), CurrentContext());
  Attachment::ForEach([](Attachment& attachment) { attachment.Gates().WithoutMarkers([] {}); });
  MarkEverywhere();
  const CUresult result = begin();
  if (result != CUDA_SUCCESS) RemoveCapture(Named(stream));
  return result;
}

bool IsCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return REAL_AS(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus*)(Named(stream), &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// A capture also ends if it fails, but not with every error.
template <typename End>
CUresult CountedEnd(CUstream stream, End end) {
  const CUresult result = end();
  if (result == CUDA_SUCCESS || (AnyCapture() && !IsCapturing(stream))) RemoveCapture(Named(stream));
  return result;
}

// A stream's capture ends when the stream is destroyed. Frees in its order are marked before.
template <typename Destroy>
CUresult CountedDestroy(CUstream stream, Destroy destroy) {
  if (AnyCapture()) RemoveCapture(Named(stream));
  EndStreamEverywhere(stream);
  return destroy();
}

}  // namespace
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
