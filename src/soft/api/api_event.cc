// Events, and streams that wait for them.
#include "soft/api/stream_variants.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/event.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

template <typename Function>
CUresult WithEvent(CUevent handle, Function&& function) {
  return WithContext([&](Context&) {
    const std::shared_ptr<Event> event = Events::Get().Find(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (event->context.sticky() != CUDA_SUCCESS) return event->context.sticky();
    return function(event);
  });
}

// The operation to wait for or to ask about, or why `event` has none.
CUresult RecordingOf(Event& event, OpRef* recording) {
  {
    const MutexLock lock(submission_mutex);
    if (event.captured) {
      const auto capture = event.capture.lock();
      if (!capture) return CUDA_ERROR_INVALID_VALUE;  // it has ended, and the event says nothing any more
      capture->invalidated = true;
      return CUDA_ERROR_CAPTURED_EVENT;
    }
    *recording = event.recording;
  }
  return CheckUnsafeCall();
}

}  // namespace

TESSERA_CUDA_API cuEventCreate(CUevent* handle, unsigned flags) {
  return WithContext([&](Context& context) {
    if (handle == nullptr || (flags & ~kEventFlags)) return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS) {
      return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    *handle = Events::Get().Add(std::make_shared<Event>(context, flags));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuEventDestroy_v2(CUevent handle) {
  return WithContext([&](Context&) { return Events::Get().Remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}
TESSERA_EXPORT(cuEventDestroy, Alias<&cuEventDestroy_v2>)

TESSERA_CUDA_API cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags) {
  return WithEvent(handle, [&](const auto& event) {
    return WithStream(stream_handle, [&](const auto& stream) {
      if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
      if (&event->context != &stream->context) return CUDA_ERROR_INVALID_HANDLE;
      // An external record is a node of the graph, which records whenever the graph runs.
      if (flags == CU_EVENT_RECORD_EXTERNAL) {
        return IsCaptured(stream) ? Submit(stream, EventRecordWork{event}) : CUDA_ERROR_ILLEGAL_STATE;
      }
      {
        const MutexLock lock(submission_mutex);
        if (stream->capture) {
          if (const CUresult result = CheckCapture(*stream); result != CUDA_SUCCESS) return result;
          RecordInCapture(*stream, *event);
          return CUDA_SUCCESS;
        }
      }
      return Submit(stream, EventRecordWork{event});
    });
  });
}
TESSERA_EXPORT_PTSZ(cuEventRecordWithFlags)

TESSERA_CUDA_API cuEventRecord(CUevent event, CUstream stream) {
  return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}
TESSERA_EXPORT_PTSZ(cuEventRecord)

// Of all streams of a context at once. Seen on driver 580: it is no barrier between them, and while one of them is
// captured, in whichever mode, it is refused and ends that capture.
TESSERA_CUDA_API cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  Context* context = handle == nullptr ? CurrentContext() : Context::FromHandle(handle);
  if (context == nullptr || !context->open()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->sticky() != CUDA_SUCCESS) return context->sticky();
  const std::shared_ptr<Event> event = Events::Get().Find(event_handle);
  if (!event || &event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = CheckSynchronize(*context); captured != CUDA_SUCCESS) return captured;
  const MutexLock lock(submission_mutex);
  context->engine().RecordAll(*event);
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuEventQuery(CUevent handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithEvent(handle, [](const auto& event) {
    OpRef recording;
    if (const CUresult result = RecordingOf(*event, &recording); result != CUDA_SUCCESS) return result;
    return Dispatcher::Done(recording) ? event->context.sticky() : CUDA_ERROR_NOT_READY;
  });
}

TESSERA_CUDA_API cuEventSynchronize(CUevent handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithEvent(handle, [](const auto& event) {
    OpRef recording;
    if (const CUresult result = RecordingOf(*event, &recording); result != CUDA_SUCCESS) return result;
    return WaitFor(recording, event->context);
  });
}

TESSERA_CUDA_API cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithEvent(start_handle, [&](const auto& start) {
    return WithEvent(end_handle, [&](const auto& end) {
      OpRef first, last;
      {
        const MutexLock lock(submission_mutex);
        if (start->captured || end->captured) return CUDA_ERROR_CAPTURED_EVENT;
        first = start->recording;
        last = end->recording;
      }
      if (!first || !last || !start->timed() || !end->timed()) return CUDA_ERROR_INVALID_HANDLE;
      if (!Dispatcher::Done(first) || !Dispatcher::Done(last)) return CUDA_ERROR_NOT_READY;
      const Nanos elapsed = Dispatcher::FinishedAt(last) - Dispatcher::FinishedAt(first);
      return Give(milliseconds, static_cast<double>(elapsed) / kMillisecond);
    });
  });
}
TESSERA_EXPORT(cuEventElapsedTime, Alias<&cuEventElapsedTime_v2>)

TESSERA_CUDA_API cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  return WithEvent(handle, [&](const auto& event) {
    return WithStream(stream_handle, [&](const auto& stream) {
      if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
      if (flags == CU_EVENT_WAIT_EXTERNAL) {
        return IsCaptured(stream) ? Submit(stream, EventWaitWork{event}) : CUDA_ERROR_ILLEGAL_STATE;
      }
      {
        const MutexLock lock(submission_mutex);
        if (stream->capture || event->captured) return WaitInCapture(stream, *event);
      }
      return Submit(stream, EventWaitWork{event});
    });
  });
}
TESSERA_EXPORT_PTSZ(cuStreamWaitEvent)

}  // namespace tessera::soft
