// Stream capture: work given to a captured stream becomes nodes of a graph. What is refused meanwhile, with which
// error, and what that does to the capture is as driver 580 was seen to answer.
#pragma once

#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/event.h"
#include "soft/exec/graph.h"
#include "soft/exec/stream.h"

namespace tessera::soft {

class Context;

struct Capture {
  std::shared_ptr<Graph> graph;
  const cuda::CUstreamCaptureMode mode;
  const std::thread::id thread;  // that began it
  Stream* const origin;
  const std::uint64_t id;
  bool into_existing = false;  // of cuStreamBeginCaptureToGraph: the graph stays the program's

  bool invalidated TESSERA_GUARDED_BY(submission_mutex) = false;
  std::vector<std::shared_ptr<Stream>> streams TESSERA_GUARDED_BY(submission_mutex);  // origin first
};

// The calling thread's mode, which cuThreadExchangeStreamCaptureMode changes.
cuda::CUstreamCaptureMode ExchangeThreadCaptureMode(cuda::CUstreamCaptureMode mode);

// For calls that CUDA holds to be unsafe while something is captured (cuMemAlloc, cuEventQuery, …): refuses, and
// invalidates the captures that forbid it. Captures in relaxed mode forbid nothing, those in thread-local mode only
// what their own thread does.
cuda::CUresult CheckUnsafeCall();

// For cuCtxSynchronize and cuCtxRecordEvent: no stream of the context may be captured.
cuda::CUresult CheckSynchronize(Context& context);

// For every use of the legacy default stream: it would wait for blocking streams that are captured, which CUDA refuses.
// A mere look at the stream does not `invalidate` their captures.
cuda::CUresult CheckLegacyUse(Context& context, bool invalidate = true) TESSERA_REQUIRES(submission_mutex);
// For what makes no sense in a captured stream: invalidates its capture. CUDA_SUCCESS if it is not captured.
cuda::CUresult RefuseInCapture(Stream& stream) TESSERA_REQUIRES(submission_mutex);
// Whether a node can be added: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if not.
cuda::CUresult CheckCapture(const Stream& stream) TESSERA_REQUIRES(submission_mutex);

// Adds `work` to the captured `stream`.
Node* AddToCapture(Stream& stream, Work work) TESSERA_REQUIRES(submission_mutex);
// Records a place in the capture of `stream`.
void RecordInCapture(Stream& stream, Event& event) TESSERA_REQUIRES(submission_mutex);
// Makes `stream` wait for an event that was recorded in a capture; brings the stream into that capture.
cuda::CUresult WaitInCapture(const std::shared_ptr<Stream>& stream, Event& event) TESSERA_REQUIRES(submission_mutex);

cuda::CUresult BeginCapture(const std::shared_ptr<Stream>& stream, cuda::CUstreamCaptureMode mode,
                            std::shared_ptr<Graph> into, std::span<Node* const> frontier)
    TESSERA_REQUIRES(submission_mutex);
// `graph` is null unless the result is CUDA_SUCCESS.
cuda::CUresult EndCapture(Stream& stream, std::shared_ptr<Graph>* graph) TESSERA_REQUIRES(submission_mutex);
// For a stream that is being destroyed: its capture ends without a graph.
void AbandonCapture(Stream& stream) TESSERA_REQUIRES(submission_mutex);

}  // namespace tessera::soft
