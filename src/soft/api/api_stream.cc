// Streams: life, order, questions, and the work that has a file of its own nowhere else.
#include <algorithm>
#include <array>

#include "soft/api/stream_variants.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/event.h"
#include "soft/exec/memory_wait.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

// Refuses calls that wait for a stream, or ask whether it is idle, while streams are captured.
CUresult CheckWait(Stream& stream) {
  {
    const MutexLock lock(submission_mutex);
    if (const CUresult result = RefuseInCapture(stream); result != CUDA_SUCCESS) return result;
    if (stream.legacy) {
      if (const CUresult result = CheckLegacyUse(stream.context); result != CUDA_SUCCESS) return result;
    }
  }
  return CheckUnsafeCall();
}

OpRef LastOf(const Stream& stream) {
  const MutexLock lock(submission_mutex);
  return stream.last;
}

// Attributes that streams have; they change nothing here.
bool IsStreamAttribute(CUstreamAttrID attribute) {
  constexpr std::array kAttributes = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                      CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
  return std::ranges::find(kAttributes, attribute) != kAttributes.end();
}

CUresult SubmitMemoryOperations(CUstream handle, std::vector<CUstreamBatchMemOpParams> operations) {
  return WithStream(handle, [&](const auto& stream) {
    if (const CUresult result = CheckMemoryOperations(operations); result != CUDA_SUCCESS) {
      return RefuseWork(stream, result);
    }
    return Submit(stream, BatchWork{std::move(operations)});
  });
}

CUresult SubmitMemoryOperation(CUstream handle, CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value,
                               unsigned flags) {
  CUstreamBatchMemOpParams operation = {};
  operation.waitValue = {.operation = type, .address = address, .value64 = value, .flags = flags, .alias = 0};
  return SubmitMemoryOperations(handle, {operation});
}

}  // namespace

// ---- life ---------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  return WithContext([&](Context& context) {
    if (handle == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *handle =
        Streams::Get().Add(context.engine().AddStream(flags, std::clamp(priority, kGreatestPriority, kLeastPriority)));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, kLeastPriority);
}

TESSERA_CUDA_API cuStreamDestroy_v2(CUstream handle) {
  return WithContext([&](Context&) {
    const auto stream = Streams::Get().Remove(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    stream->context.engine().RemoveStream(stream);
    return CUDA_SUCCESS;
  });
}
TESSERA_EXPORT(cuStreamDestroy, Alias<&cuStreamDestroy_v2>)

// ---- questions ----------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuStreamGetPriority(CUstream handle, int* priority) {
  return WithStream(handle, [&](const auto& stream) { return Give(priority, stream->priority); });
}
TESSERA_EXPORT_PTSZ(cuStreamGetPriority)

TESSERA_CUDA_API cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return WithStream(handle, [&](const auto& stream) {
    const MutexLock lock(submission_mutex);
    const CUresult captured = RefuseInCapture(*stream);
    return captured != CUDA_SUCCESS ? captured : Give(flags, stream->flags);
  });
}
TESSERA_EXPORT_PTSZ(cuStreamGetFlags)

TESSERA_CUDA_API cuStreamGetId(CUstream handle, unsigned long long* id) {
  return WithStream(handle, [&](const auto& stream) {
    const MutexLock lock(submission_mutex);
    const CUresult captured = RefuseInCapture(*stream);
    return captured != CUDA_SUCCESS ? captured : Give(id, stream->id);
  });
}
TESSERA_EXPORT_PTSZ(cuStreamGetId)

TESSERA_CUDA_API cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return WithStream(handle, [&](const auto& stream) { return Give(context, stream->context.handle()); });
}
TESSERA_EXPORT_PTSZ(cuStreamGetCtx)

TESSERA_CUDA_API cuStreamQuery(CUstream handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithStream(handle, [&](const auto& stream) {
    if (const CUresult result = CheckWait(*stream); result != CUDA_SUCCESS) return result;
    if (!Dispatcher::Done(LastOf(*stream))) return CUDA_ERROR_NOT_READY;
    return stream->context.sticky();
  });
}
TESSERA_EXPORT_PTSZ(cuStreamQuery)

TESSERA_CUDA_API cuStreamSynchronize(CUstream handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithStream(handle, [&](const auto& stream) {
    if (const CUresult result = CheckWait(*stream); result != CUDA_SUCCESS) return result;
    return WaitFor(LastOf(*stream), stream->context);
  });
}
TESSERA_EXPORT_PTSZ(cuStreamSynchronize)

// ---- attributes ---------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return WithStream(handle, [&](const auto& stream) {
    if (!IsStreamAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
    CUstreamAttrValue answer = {};
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) answer.priority = stream->priority;
    if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) answer.syncPolicy = CU_SYNC_POLICY_AUTO;
    return Give(value, answer);
  });
}
TESSERA_EXPORT_PTSZ(cuStreamGetAttribute)

TESSERA_CUDA_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  return WithStream(handle, [&](const auto&) {
    return value != nullptr && IsStreamAttribute(attribute) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
TESSERA_EXPORT_PTSZ(cuStreamSetAttribute)

// ---- host functions -----------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return WithStream(handle, [&](const auto& stream) {
    if (function == nullptr) return RefuseWork(stream, CUDA_ERROR_INVALID_VALUE);
    return Submit(stream, HostWork{function, data});
  });
}
TESSERA_EXPORT_PTSZ(cuLaunchHostFunc)

TESSERA_CUDA_API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
  return WithStream(handle, [&](const auto& stream) {
    if (callback == nullptr || flags != 0) return RefuseWork(stream, CUDA_ERROR_INVALID_VALUE);
    const MutexLock lock(submission_mutex);
    if (stream->legacy) {
      if (const CUresult result = CheckLegacyUse(stream->context); result != CUDA_SUCCESS) return result;
    }
    if (const CUresult result = RefuseInCapture(*stream); result != CUDA_SUCCESS) return result;
    Context& context = stream->context;
    const auto body = [=, &context] {
      callback(handle, context.sticky(), data);
      return CUDA_SUCCESS;
    };
    context.engine().Append(*stream, Task{.lane = Lane::kHost, .body = body, .even_after_error = true});
    return CUDA_SUCCESS;
  });
}
TESSERA_EXPORT_PTSZ(cuStreamAddCallback)

// ---- memory operations --------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags) {
  return SubmitMemoryOperation(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

TESSERA_CUDA_API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags) {
  return SubmitMemoryOperation(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

TESSERA_CUDA_API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned flags) {
  return SubmitMemoryOperation(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

TESSERA_CUDA_API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags) {
  return SubmitMemoryOperation(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}

TESSERA_CUDA_API cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                                       unsigned flags) {
  if (operations == nullptr || count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return SubmitMemoryOperations(stream, {operations, operations + count});
}

#define EXPORT_MEMORY_OPERATION(name)                \
  TESSERA_EXPORT(name, Alias<&name##_v2>)            \
  TESSERA_EXPORT(name##_ptsz, PerThread<&name##_v2>) \
  TESSERA_EXPORT_PTSZ(name##_v2)
EXPORT_MEMORY_OPERATION(cuStreamWaitValue32)
EXPORT_MEMORY_OPERATION(cuStreamWaitValue64)
EXPORT_MEMORY_OPERATION(cuStreamWriteValue32)
EXPORT_MEMORY_OPERATION(cuStreamWriteValue64)
EXPORT_MEMORY_OPERATION(cuStreamBatchMemOp)

}  // namespace tessera::soft
