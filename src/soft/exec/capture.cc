#include "soft/exec/capture.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "soft/device/context.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// All captures that have not ended. Never destroyed.
std::vector<std::shared_ptr<Capture>>& Captures() TESSERA_REQUIRES(submission_mutex) {
  static auto& captures = *new std::vector<std::shared_ptr<Capture>>;
  return captures;
}

// `capture` forbids unsafe calls of the calling thread.
bool Forbids(const Capture& capture) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

template <typename Predicate>
CUresult RefuseIfAny(CUresult error, bool invalidate, const Predicate& predicate) TESSERA_REQUIRES(submission_mutex) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Captures()) {
    if (!predicate(*capture)) continue;
    capture->invalidated |= invalidate;
    result = error;
  }
  return result;
}

template <typename Predicate>
bool HasStream(const Capture& capture, const Predicate& predicate) TESSERA_REQUIRES(submission_mutex) {
  for (const auto& stream : capture.streams) {
    if (predicate(*stream)) return true;
  }
  return false;
}

// Nodes of `capture` that some stream of it ends with, but that the origin does not wait for.
bool HasUnjoinedWork(const Capture& capture) TESSERA_REQUIRES(submission_mutex) {
  std::set<const Node*> joined;
  std::vector<const Node*> open(capture.origin->frontier.begin(), capture.origin->frontier.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!joined.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const auto& stream : capture.streams) {
    for (const Node* node : stream->frontier) {
      if (!joined.contains(node)) return true;
    }
  }
  return false;
}

void Close(const std::shared_ptr<Capture>& capture) TESSERA_REQUIRES(submission_mutex) {
  for (const auto& stream : capture->streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  std::erase(Captures(), capture);
}

// The graph of a capture that failed is thrown away.
void Discard(const Capture& capture) {
  if (capture.into_existing) return;
  RetractNodes(*capture.graph);
  Graphs::Get().Remove(Graphs::Of(*capture.graph));
}

}  // namespace

CUstreamCaptureMode ExchangeThreadCaptureMode(CUstreamCaptureMode mode) { return std::exchange(thread_mode, mode); }

CUresult CheckUnsafeCall() {
  const MutexLock lock(submission_mutex);
  return RefuseIfAny(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true, Forbids);
}

CUresult CheckSynchronize(Context& context) {
  const MutexLock lock(submission_mutex);
  return RefuseIfAny(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true,
                     [&](const Capture& capture) TESSERA_REQUIRES(submission_mutex) {
                       return HasStream(capture, [&](const Stream& stream) { return &stream.context == &context; });
                     });
}

CUresult CheckLegacyUse(Context& context, bool invalidate) {
  const auto matches = [&](const Stream& stream) { return &stream.context == &context && stream.blocking(); };
  return RefuseIfAny(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, invalidate,
                     [&](const Capture& capture)
                         TESSERA_REQUIRES(submission_mutex) { return HasStream(capture, matches); });
}

CUresult RefuseInCapture(Stream& stream) {
  if (!stream.capture) return CUDA_SUCCESS;
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult CheckCapture(const Stream& stream) {
  return stream.capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

Node* AddToCapture(Stream& stream, Work work) {
  Graph& graph = *stream.capture->graph;
  Node* node = graph.Add(std::move(work), stream.frontier);
  Nodes::Get().Add(graph.nodes().back());
  stream.frontier = {node};
  return node;
}

void RecordInCapture(Stream& stream, Event& event) {
  event.captured = true;
  event.capture = stream.capture;
  event.frontier = stream.frontier;
}

CUresult WaitInCapture(const std::shared_ptr<Stream>& stream, Event& event) {
  const auto capture = event.captured ? event.capture.lock() : nullptr;
  if (!capture) {
    if (!stream->capture) return CUDA_ERROR_INVALID_VALUE;  // the event's capture has ended
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->legacy) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture && stream->capture != capture) {
    stream->capture->invalidated = capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!stream->capture) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  for (Node* node : event.frontier) {
    if (std::ranges::find(stream->frontier, node) == stream->frontier.end()) stream->frontier.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult BeginCapture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> into,
                      std::span<Node* const> frontier) {
  static std::atomic<std::uint64_t> next_id = 1;
  if (stream->legacy) {
    const CUresult implicit = CheckLegacyUse(stream->context);
    return implicit != CUDA_SUCCESS ? implicit : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  const bool existing = into != nullptr;
  auto capture = std::make_shared<Capture>(existing ? std::move(into) : std::make_shared<Graph>(), mode,
                                           std::this_thread::get_id(), stream.get(), next_id++, existing);
  capture->streams = {stream};
  stream->frontier.assign(frontier.begin(), frontier.end());
  stream->capture = capture;
  if (!existing) Graphs::Get().Add(capture->graph);
  Captures().push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult EndCapture(Stream& stream, std::shared_ptr<Graph>* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) {
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (HasUnjoinedWork(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  Close(capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
  } else {
    Discard(*capture);
  }
  return result;
}

void AbandonCapture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  if (capture->origin == &stream) {
    Close(capture);
    Discard(*capture);
    return;
  }
  capture->invalidated = true;
  std::erase_if(capture->streams, [&](const auto& member) { return member.get() == &stream; });
}

}  // namespace tessera::soft
