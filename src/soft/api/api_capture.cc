// Stream capture: begin, end, and a look inside.
#include <vector>

#include "soft/api/graph_api.h"
#include "soft/api/stream_variants.h"
#include "soft/exec/capture.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

bool IsMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Runs `function(stream, capture)` with submission_mutex held, for questions about a capture, which may be null.
template <typename Function>
CUresult WithCapture(CUstream handle, Function&& function) {
  return WithStream(handle, [&](const std::shared_ptr<Stream>& stream) {
    const MutexLock lock(submission_mutex);
    if (stream->legacy) {
      const CUresult implicit = CheckLegacyUse(stream->context, /*invalidate=*/false);
      if (implicit != CUDA_SUCCESS) return implicit;
    }
    return function(*stream, stream->capture.get());
  });
}

CUstreamCaptureStatus StatusOf(const Capture* capture) TESSERA_REQUIRES(submission_mutex) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

TESSERA_CUDA_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || !IsMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  *mode = ExchangeThreadCaptureMode(*mode);
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return WithStream(handle, [&](const auto& stream) {
    if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(submission_mutex);
    return BeginCapture(stream, mode, nullptr, {});
  });
}
TESSERA_EXPORT_PTSZ(cuStreamBeginCapture_v2)

TESSERA_CUDA_API cuStreamBeginCapture(CUstream handle) {
  return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
TESSERA_EXPORT_PTSZ(cuStreamBeginCapture)

TESSERA_CUDA_API cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                                             const CUgraphEdgeData*, std::size_t count, CUstreamCaptureMode mode) {
  return WithStream(handle, [&](const auto& stream) {
    const auto graph = Graphs::Get().Find(graph_handle);
    std::vector<Node*> nodes;
    if (!graph || !IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = FindNodes(*graph, dependencies, count, &nodes); result != CUDA_SUCCESS) return result;
    const MutexLock lock(submission_mutex);
    return BeginCapture(stream, mode, graph, nodes);
  });
}
TESSERA_EXPORT_PTSZ(cuStreamBeginCaptureToGraph)

TESSERA_CUDA_API cuStreamEndCapture(CUstream handle, CUgraph* graph_handle) {
  return WithStream(handle, [&](const auto& stream) {
    if (graph_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Graph> graph;
    const MutexLock lock(submission_mutex);
    const CUresult result = EndCapture(*stream, &graph);
    *graph_handle = graph ? Graphs::Of(*graph) : nullptr;
    return result;
  });
}
TESSERA_EXPORT_PTSZ(cuStreamEndCapture)

TESSERA_CUDA_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return WithCapture(handle, [&](Stream&, const Capture* capture)
                                 TESSERA_REQUIRES(submission_mutex) { return Give(status, StatusOf(capture)); });
}
TESSERA_EXPORT_PTSZ(cuStreamIsCapturing)

TESSERA_CUDA_API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, std::uint64_t* id,
                                           CUgraph* graph, const CUgraphNode** dependencies,
                                           const CUgraphEdgeData** edges, std::size_t* count) {
  return WithCapture(handle, [&](Stream& stream, const Capture* capture) TESSERA_REQUIRES(submission_mutex) {
    if (const CUresult result = Give(status, StatusOf(capture)); result != CUDA_SUCCESS) return result;
    if (capture == nullptr || capture->invalidated) return CUDA_SUCCESS;
    // Lent until the next call that changes the capture, as the API says. A handle is the address of its node.
    static_assert(sizeof(CUgraphNode) == sizeof(Node*));
    thread_local std::vector<CUgraphEdgeData> no_edge_data;
    no_edge_data.assign(stream.frontier.size(), {});
    if (id != nullptr) *id = capture->id;
    if (graph != nullptr) *graph = Graphs::Of(*capture->graph);
    if (dependencies != nullptr) *dependencies = reinterpret_cast<const CUgraphNode*>(stream.frontier.data());
    if (edges != nullptr) *edges = no_edge_data.data();
    if (count != nullptr) *count = stream.frontier.size();
    return CUDA_SUCCESS;
  });
}
TESSERA_EXPORT_PTSZ(cuStreamGetCaptureInfo_v3)

TESSERA_CUDA_API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, std::uint64_t* id,
                                           CUgraph* graph, const CUgraphNode** dependencies, std::size_t* count) {
  return cuStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, nullptr, count);
}
TESSERA_EXPORT_PTSZ(cuStreamGetCaptureInfo_v2)

TESSERA_CUDA_API cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* dependencies,
                                                      const CUgraphEdgeData*, std::size_t count, unsigned flags) {
  return WithCapture(handle, [&](Stream& stream, const Capture* capture) TESSERA_REQUIRES(submission_mutex) {
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Node*> nodes;
    if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) nodes = stream.frontier;
    if (const CUresult result = FindNodes(*capture->graph, dependencies, count, &nodes); result != CUDA_SUCCESS) {
      return result;
    }
    stream.frontier = std::move(nodes);
    return CUDA_SUCCESS;
  });
}
TESSERA_EXPORT_PTSZ(cuStreamUpdateCaptureDependencies_v2)

TESSERA_CUDA_API cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* dependencies, std::size_t count,
                                                   unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(handle, dependencies, nullptr, count, flags);
}
TESSERA_EXPORT_PTSZ(cuStreamUpdateCaptureDependencies)

}  // namespace tessera::soft
