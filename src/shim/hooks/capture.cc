// Beginning and end of stream captures, which the shim counts.
#include "shim/gate/capture.h"

#include <optional>

#include "shim/device/current.h"
#include "shim/device/stream_use.h"
#include "shim/graph/memory_execs.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// The legacy stream cannot capture, so null is the calling thread's own.
CUstream Named(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

// The graph that a stream's capture makes; null: the driver does not say.
CUgraph GraphMadeIn(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  CUresult asked = REAL_AS(cuStreamGetCaptureInfo_v3, CUstream, CUstreamCaptureStatus*, std::uint64_t*, CUgraph*,
                           const CUgraphNode**, const CUgraphEdgeData**,
                           std::size_t*)(stream, &status, &id, &graph, &after, &edges, &count);
  if (asked != CUDA_SUCCESS)  // a driver before 12.3
    asked = REAL_AS(cuStreamGetCaptureInfo_v2, CUstream, CUstreamCaptureStatus*, std::uint64_t*, CUgraph*,
                    const CUgraphNode**, std::size_t*)(stream, &status, &id, &graph, &after, &count);
  return asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr;
}

// Beginning a capture must not race with a marker that is being placed, or a mark behind frees: the driver would end
// the capture, or take the mark for a part of it.
template <typename Begin>
CUresult CountedBegin(CUstream stream, Begin begin) {
  if (const CUresult entered = PinReservedSms(); entered != CUDA_SUCCESS) return entered;
  AddCapture(Named(stream), CurrentContext());
  Attachment::ForEach([](Attachment& attachment) { attachment.Gates().WithoutMarkers([] {}); });
  MarkEverywhere();
  const CUresult result = begin();
  if (result != CUDA_SUCCESS) RemoveCapture(Named(stream));
  return result;
}

// A capture that makes a graph. A graph of a capture that failed may have had the handle, and ended without a word.
template <typename Begin>
CUresult NewGraphBegin(CUstream stream, Begin begin) {
  const CUresult result = CountedBegin(stream, begin);
  if (result != CUDA_SUCCESS) return result;
  const CUgraph graph = GraphMadeIn(Named(stream));
  NoteCapturedGraph(Named(stream), graph);
  ForgetGraphMemory(graph);
  return result;
}

// None: the driver does not say.
std::optional<CUstreamCaptureStatus> StatusOf(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = REAL_AS(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus*)(Named(stream), &status);
  return asked == CUDA_SUCCESS ? std::optional(status) : std::nullopt;
}

// A capture also ends if it fails, but not with every error. Its graph is forgotten before where that is known to come:
// another thread may be given the handle as soon as it is free.
template <typename End>
CUresult CountedEnd(CUstream stream, End end) {
  const CUgraph graph = MemoryNodes::Any() ? CapturedGraph(Named(stream)) : nullptr;
  const bool invalid = graph && StatusOf(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (invalid) ForgetGraphMemory(graph);
  const CUresult result = end();
  const bool failed = result != CUDA_SUCCESS && AnyCapture() &&
                      StatusOf(stream).value_or(CU_STREAM_CAPTURE_STATUS_NONE) == CU_STREAM_CAPTURE_STATUS_NONE;
  if (failed && !invalid) ForgetGraphMemory(graph);
  if (result == CUDA_SUCCESS || failed) RemoveCapture(Named(stream));
  return result;
}

// A stream's capture ends when the stream is destroyed. Frees in its order are marked before.
template <typename Destroy>
CUresult CountedDestroy(CUstream stream, Destroy destroy) {
  if (AnyCapture()) {
    ForgetGraphMemory(CapturedGraph(Named(stream)));
    RemoveCapture(Named(stream));
  }
  EndStreamEverywhere(stream);
  EndBlockingStream(stream);
  const CUresult result = destroy();
  if (result == CUDA_SUCCESS) UnpinReservedSms();
  return result;
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera::cuda;
using namespace tessera::shim;

#define BEGIN_CAPTURE(name)                                                 \
  TESSERA_HOOK name(CUstream stream, CUstreamCaptureMode mode) {            \
    return NewGraphBegin(stream, [&] { return REAL(name)(stream, mode); }); \
  }
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz)
BEGIN_CAPTURE(cuStreamBeginCapture_v2)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz)

// The first version had no mode.
TESSERA_HOOK cuStreamBeginCapture(CUstream stream) {
  return NewGraphBegin(stream, [&] { return REAL(cuStreamBeginCapture)(stream); });
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
