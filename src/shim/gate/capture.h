// The stream captures of the process, in a table. While one runs, the shim may not touch any stream.
#pragma once

#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// Whether any stream of the process captures. Exact while a gate keeper's mutex is held: each capture takes all of them
// as it begins.
bool AnyCapture();

// Whether the stream captures, or the driver does not say. The legacy stream answers an error while another one
// captures: the driver will refuse a submission itself.
bool IsCapturing(cuda::CUstream stream);

// `stream` is never null here: the calling thread's own default stream has a name, and the legacy one cannot capture.
void AddCapture(cuda::CUstream stream, cuda::CUcontext context);
// The stream's capture makes this graph, which ends with the capture if that fails.
void NoteCapturedGraph(cuda::CUstream stream, cuda::CUgraph graph);
// The graph that was noted; null: none.
cuda::CUgraph CapturedGraph(cuda::CUstream stream);
void RemoveCapture(cuda::CUstream stream);
// A context has ended, and its captures with it. The graphs that were noted of them.
std::vector<cuda::CUgraph> ForgetCapturesOf(cuda::CUcontext context);

// While it lives, the calling thread may make driver calls that another thread's capture would otherwise forbid
// (cuThreadExchangeStreamCaptureMode).
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cuda::CUstreamCaptureMode before_;
};

}  // namespace tessera::shim
