// How API calls give streams work: into the stream's queue, or into the graph that it captures.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cuda/cuda_abi.h"
#include "soft/device/context.h"
#include "soft/exec/stream.h"
#include "soft/exec/work.h"

namespace tessera::soft {

// The stream that `handle` means for the calling thread, whose current context is `context`. Null if there is none;
// a green context has no stream of the thread's own.
std::shared_ptr<Stream> FindStream(Context& context, cuda::CUstream handle);

// Runs `function(stream)` for a stream of a context without a fault; the checks of WithContext come first.
// CUDA_ERROR_INVALID_HANDLE if there is no such stream.
template <typename Function>
cuda::CUresult WithStream(cuda::CUstream handle, Function&& function) {
  return WithContext([&](Context& context) {
    const std::shared_ptr<Stream> stream = FindStream(context, handle);
    if (!stream) return cuda::CUDA_ERROR_INVALID_HANDLE;
    if (stream->context.sticky() != cuda::CUDA_SUCCESS) return stream->context.sticky();
    return function(stream);
  });
}

// Gives `work` to the stream. `op`, if not null, gets the operation, or null if the work was captured.
cuda::CUresult Submit(const std::shared_ptr<Stream>& stream, Work work, OpRef* op = nullptr);

// Runs `body`, on a thread of the engine, when the stream comes to it. For what no graph can hold: a captured stream
// refuses, and its capture is invalidated.
cuda::CUresult SubmitCall(const std::shared_ptr<Stream>& stream, std::function<cuda::CUresult()> body,
                          OpRef* op = nullptr);

// Waits for `op`. The context's fault, if it has one by then.
cuda::CUresult WaitFor(const OpRef& op, Context& context);

// Refuses work that is wrong in itself with `error`, and invalidates the stream's capture.
cuda::CUresult RefuseWork(const std::shared_ptr<Stream>& stream, cuda::CUresult error);

// Memory of a captured stream, which becomes a node of its graph. CUDA_ERROR_INVALID_VALUE for an address that no
// graph allocated.
bool IsCaptured(const std::shared_ptr<Stream>& stream);
cuda::CUresult CaptureAllocation(const std::shared_ptr<Stream>& stream, const cuda::CUmemPoolProps& pool,
                                 std::size_t bytes, cuda::CUdeviceptr* address);
cuda::CUresult CaptureFree(const std::shared_ptr<Stream>& stream, cuda::CUdeviceptr address);

}  // namespace tessera::soft
