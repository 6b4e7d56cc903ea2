#include "soft/exec/submit.h"

#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/graph_memory.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Whether `stream` takes work now, captured or not.
CUresult CheckStream(const Stream& stream) TESSERA_REQUIRES(submission_mutex) {
  if (stream.legacy) return CheckLegacyUse(stream.context);
  return stream.capture ? CheckCapture(stream) : CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<Stream> FindStream(Context& context, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context.engine().legacy();
  if (handle == CU_STREAM_PER_THREAD) {
    return CurrentPlace().green != nullptr ? nullptr : context.engine().PerThread();
  }
  return Streams::Get().Find(handle);
}

CUresult Submit(const std::shared_ptr<Stream>& stream, Work work, OpRef* op) {
  if (op) *op = nullptr;
  const MutexLock lock(submission_mutex);
  if (const CUresult result = CheckStream(*stream); result != CUDA_SUCCESS) return result;
  if (stream->capture) {
    AddToCapture(*stream, std::move(work));
    return CUDA_SUCCESS;
  }
  const OpRef submitted = stream->context.engine().Append(*stream, work);
  if (op) *op = submitted;
  return CUDA_SUCCESS;
}

CUresult SubmitCall(const std::shared_ptr<Stream>& stream, std::function<CUresult()> body, OpRef* op) {
  if (op) *op = nullptr;
  const MutexLock lock(submission_mutex);
  if (const CUresult result = CheckStream(*stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = RefuseInCapture(*stream); result != CUDA_SUCCESS) return result;
  const OpRef submitted = stream->context.engine().Append(*stream, Task{Lane::kMemory, std::move(body)});
  if (op) *op = submitted;
  return CUDA_SUCCESS;
}

CUresult WaitFor(const OpRef& op, Context& context) {
  Dispatcher::Wait(op);
  return context.sticky();
}

CUresult RefuseWork(const std::shared_ptr<Stream>& stream, CUresult error) {
  const MutexLock lock(submission_mutex);
  RefuseInCapture(*stream);
  return error;
}

bool IsCaptured(const std::shared_ptr<Stream>& stream) {
  const MutexLock lock(submission_mutex);
  return stream->capture != nullptr;
}

CUresult CaptureAllocation(const std::shared_ptr<Stream>& stream, const CUmemPoolProps& pool, std::size_t bytes,
                           CUdeviceptr* address) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {.poolProps = pool, .bytesize = bytes};
  std::shared_ptr<GraphMemory> memory;
  if (const CUresult result = MakeGraphMemory(stream->context, &parameters, &memory); result != CUDA_SUCCESS) {
    return result;
  }
  *address = parameters.dptr;
  return Submit(stream, AllocWork{std::move(memory), parameters});
}

CUresult CaptureFree(const std::shared_ptr<Stream>& stream, CUdeviceptr address) {
  auto memory = FindGraphMemory(address);
  if (!memory || !memory->TakeFreeNode()) return CUDA_ERROR_INVALID_VALUE;
  return Submit(stream, FreeWork{std::move(memory)});
}

}  // namespace tessera::soft
