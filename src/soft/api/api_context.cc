// Contexts: primary ones, others, the stack of each thread, settings.

#include <set>
#include <utility>

#include "soft/api/api.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// How many retained the primary context of a device, and with which flags it is made.
struct Primary {
  int users = 0;
  unsigned flags = 0;
};

constinit Mutex mutex;
Primary primaries[kMaxDevices] TESSERA_GUARDED_BY(mutex);

// The first of the two may access the memory of the second. All devices of a process see one address space: peer access
// is bookkeeping.
using Peers = std::set<std::pair<const Context*, const Context*>>;
Peers& EnabledPeers() TESSERA_REQUIRES(mutex) {
  static Peers& peers = *new Peers;
  return peers;
}

template <typename Function>
CUresult WithPrimary(CUdevice ordinal, Function&& function) {
  return WithDevice(ordinal, [&](Device& device) {
    const MutexLock lock(mutex);
    return function(device.primary(), primaries[device.index()]);
  });
}

// The context of `handle`, or the current one for null.
template <typename Function>
CUresult WithContextOrCurrent(CUcontext handle, Function&& function) {
  if (handle == nullptr) return WithContext(function);
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  Context* context = Context::FromHandle(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->open() ? function(*context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool KnownFlags(unsigned flags) {
  return (flags & ~CU_CTX_FLAGS_MASK) == 0 && (flags & CU_CTX_SCHED_MASK) != CU_CTX_SCHED_MASK;
}

}  // namespace

// ---- primary contexts ---------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithPrimary(ordinal, [&](Context& context, Primary& primary) {
    if (!context.open()) {
      if (const CUresult opened = context.Open(primary.flags); opened != CUDA_SUCCESS) return opened;
    }
    ++primary.users;
    *handle = context.handle();
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return WithPrimary(ordinal, [&](Context& context, Primary& primary) {
    if (primary.users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.users == 0) context.Close();
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return WithPrimary(ordinal, [&](Context& context, Primary& primary) {
    context.Close();
    primary.users = 0;
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  if (!KnownFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  return WithPrimary(ordinal, [&](Context& context, Primary& primary) {
    primary.flags = flags;
    if (context.open()) context.set_flags(flags);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return WithPrimary(ordinal, [&](Context& context, Primary& primary) {
    if (flags != nullptr) *flags = primary.flags;
    if (active != nullptr) *active = context.open();
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDevicePrimaryCtxRelease(CUdevice ordinal) { return cuDevicePrimaryCtxRelease_v2(ordinal); }
TESSERA_CUDA_API cuDevicePrimaryCtxReset(CUdevice ordinal) { return cuDevicePrimaryCtxReset_v2(ordinal); }
TESSERA_CUDA_API cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

// ---- other contexts -----------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuCtxCreate_v2(CUcontext* handle, unsigned flags, CUdevice ordinal) {
  return WithDevice(ordinal, [&](Device& device) {
    if (handle == nullptr || !KnownFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
    Context& context = *new Context(device);
    if (const CUresult opened = context.Open(flags); opened != CUDA_SUCCESS) return opened;
    PushContext({.context = &context});
    *handle = context.handle();
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuCtxCreate(CUcontext* handle, unsigned flags, CUdevice ordinal) {
  return cuCtxCreate_v2(handle, flags, ordinal);
}

TESSERA_CUDA_API cuCtxCreate_v3(CUcontext* handle, CUexecAffinityParam*, int affinities, unsigned flags,
                                CUdevice ordinal) {
  if (affinities != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return cuCtxCreate_v2(handle, flags, ordinal);
}

TESSERA_CUDA_API cuCtxCreate_v4(CUcontext* handle, CUctxCreateParams* parameters, unsigned flags, CUdevice ordinal) {
  if (parameters != nullptr && parameters->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (parameters != nullptr && parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return cuCtxCreate_v2(handle, flags, ordinal);
}

TESSERA_CUDA_API cuCtxDestroy_v2(CUcontext handle) {
  return WithContextOrCurrent(handle, [&](Context& context) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (&context == &context.device().primary()) return CUDA_ERROR_INVALID_CONTEXT;
    if (CurrentContext() == &context) PopContext();
    context.Close();
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

// ---- the calling thread's stack -----------------------------------------------------------------------------------

TESSERA_CUDA_API cuCtxGetCurrent(CUcontext* handle) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  return Give(handle, CurrentPlace().handle());
}

TESSERA_CUDA_API cuCtxSetCurrent(CUcontext handle) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const Current current = Current::FromHandle(handle);
  if (handle != nullptr && current.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (current.context != nullptr && !current.context->open()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  SetCurrent(current);
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuCtxPushCurrent_v2(CUcontext handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithContextOrCurrent(handle, [handle](Context&) {
    PushContext(Current::FromHandle(handle));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuCtxPopCurrent_v2(CUcontext* handle) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const Current current = PopContext();
  if (current.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = current.handle();
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }
TESSERA_CUDA_API cuCtxPopCurrent(CUcontext* handle) { return cuCtxPopCurrent_v2(handle); }

// The calls of CUDA 3 that counted uses: one context, one use.
TESSERA_CUDA_API cuCtxAttach(CUcontext* handle, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return WithContext([&](Context& context) { return Give(handle, context.handle()); });
}

TESSERA_CUDA_API cuCtxDetach(CUcontext handle) { return cuCtxDestroy_v2(handle); }

// ---- what a context says about itself -----------------------------------------------------------------------------

TESSERA_CUDA_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  return WithContextOrCurrent(handle, [&](Context& context) { return Give(device, context.device().index()); });
}

TESSERA_CUDA_API cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

TESSERA_CUDA_API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return WithContextOrCurrent(handle, [&](Context& context) { return Give(id, context.id()); });
}

TESSERA_CUDA_API cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return WithContextOrCurrent(handle, [&](Context&) { return Give(version, 3020); });
}

TESSERA_CUDA_API cuCtxGetFlags(unsigned* flags) {
  return WithContext([&](Context& context) { return Give(flags, context.flags()); });
}

// ---- settings: kept and told, without an effect on the soft GPU ---------------------------------------------------

TESSERA_CUDA_API cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  return WithContext([&](Context& context) {
    if (const CUresult captured = CheckUnsafeCall(); captured != CUDA_SUCCESS) return captured;
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return Give(value, context.limits()[static_cast<std::size_t>(limit)]);
  });
}

TESSERA_CUDA_API cuCtxSetLimit(CUlimit limit, std::size_t value) {
  return WithContext([&](Context& context) {
    if (const CUresult captured = CheckUnsafeCall(); captured != CUDA_SUCCESS) return captured;
    if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context.limits()[static_cast<std::size_t>(limit)] = value;
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuCtxGetCacheConfig(CUfunc_cache* config) {
  return WithContext([&](Context&) { return Give(config, CU_FUNC_CACHE_PREFER_NONE); });
}

TESSERA_CUDA_API cuCtxSetCacheConfig(CUfunc_cache) {
  return WithContext([](Context&) { return CUDA_SUCCESS; });
}

TESSERA_CUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return WithContext([&](Context&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

// ---- waiting, peers -----------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuCtxSynchronize_v2(CUcontext handle) {
  const ApiCall call(ApiCall::Kind::kReadsMemory);
  return WithContextOrCurrent(handle, [](Context& context) {
    if (const CUresult captured = CheckSynchronize(context); captured != CUDA_SUCCESS) return captured;
    context.engine().Synchronize();
    return context.sticky();
  });
}

TESSERA_CUDA_API cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

TESSERA_CUDA_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return WithContext([&](Context& context) {
    const Context* other = Context::FromHandle(peer);
    if (other == nullptr || other == &context) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(mutex);
    return EnabledPeers().emplace(&context, other).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

TESSERA_CUDA_API cuCtxDisablePeerAccess(CUcontext peer) {
  return WithContext([&](Context& context) {
    const Context* other = Context::FromHandle(peer);
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const MutexLock lock(mutex);
    return EnabledPeers().erase({&context, other}) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

// ---- profiling ----------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuProfilerStart() {
  return WithContext([](Context&) { return CUDA_SUCCESS; });
}

TESSERA_CUDA_API cuProfilerStop() {
  return WithContext([](Context&) { return CUDA_SUCCESS; });
}

}  // namespace tessera::soft
