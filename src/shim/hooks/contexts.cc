// Contexts: their own memory counts, and a thread's gate follows its current context.
#include <map>

#include "base/fork_mutex.h"
#include "shim/device/current.h"
#include "shim/device/stream_use.h"
#include "shim/gate/capture.h"
#include "shim/graph/memory_execs.h"
#include "shim/load/green_contexts.h"
#include "shim/memory/arrival.h"
#include "shim/memory/imports.h"
#include "shim/memory/ledger.h"
#include "shim/memory/paging.h"
#include "shim/order/stream_pools.h"
#include "shim/session/session.h"

namespace tessera::shim {

void StopAtExit();

namespace {

using namespace cuda;

ForkMutex uses_mutex;

// How often a context was attached to beside its making (cuCtxAttach, of CUDA 3).
std::map<CUcontext, int>& ExtraUses() TESSERA_REQUIRES(uses_mutex) {
  static auto* uses = new std::map<CUcontext, int>;
  return *uses;
}

void Attached(CUcontext context) {
  const MutexLock lock(uses_mutex);
  ++ExtraUses()[context];
}

// Takes one extra use away; false if there is none.
bool Detached(CUcontext context) {
  const MutexLock lock(uses_mutex);
  const auto at = ExtraUses().find(context);
  if (at == ExtraUses().end()) return false;
  if (--at->second == 0) ExtraUses().erase(at);
  return true;
}

void ForgetUses(CUcontext context) {
  const MutexLock lock(uses_mutex);
  ExtraUses().erase(context);
}

// Makes a context if the vGPU has room for it.
template <typename Create>
CUresult CountedCreate(CUdevice device, Create create) {
  ForgetThreadGate();
  Attachment* attachment = Attachment::Of(device);
  if (!attachment && Session::Instance().Managed()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (attachment && !attachment->Room().TakeContext()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = MakeWithRoom(attachment ? &attachment->Room() : nullptr, create);
  if (result == CUDA_SUCCESS) {
    if (attachment) StopAtExit();
  } else if (attachment) {
    attachment->Memory().DropContext();
  }
  return result;
}

CUdevice DeviceOf(CUcontext context) {
  CUdevice device = -1;
  CUcontext before = nullptr;
  REAL_AS(cuCtxPushCurrent_v2, CUcontext)(context);
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS) device = -1;
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
  return device;
}

// What is allocated or opened from now on may belong to another context at the same address.
struct NextIds {
  explicit NextIds(Attachment& attachment) : block(attachment.Pager() ? attachment.Pager()->Heap().NextId() : 0) {}
  const std::uint64_t block;
  const std::uint64_t import = NextImportId();
};

// Gives back what the context had; `below` is from before it ended. Memory of pools belongs to no context: it
// ends with the device's last one, without which nothing can use it.
void Ended(Attachment& attachment, CUcontext context, const NextIds& below) {
  GiveBackOf(context);
  Paging* paging = attachment.Pager();
  if (paging) paging->FreeAllOf(context, below.block);
  EndContextEverywhere(context);
  CloseImportsOf(context, below.import);
  for (const CUgraph graph : ForgetCapturesOf(context)) ForgetGraphMemory(graph);
  ForgetCurrentPools();
  if (attachment.Memory().DropContext() && paging) paging->FreeAllOf(nullptr, below.block);
}

template <typename Destroy>
CUresult CountedDestroy(CUcontext context, Destroy destroy) {
  ForgetThreadGate();
  Attachment* attachment = Session::Instance().Managed() && context ? Attachment::Of(DeviceOf(context)) : nullptr;
  if (!attachment) return destroy();
  CUresult result = CUDA_SUCCESS;
  const NextIds below(*attachment);
  DropEventsEverywhere(context);
  attachment->Gates().EndContext(context, true, [&] { return (result = destroy()) == CUDA_SUCCESS; });
  if (result == CUDA_SUCCESS) {
    Ended(*attachment, context, below);
    ForgetUses(context);
  }
  return result;
}

bool PrimaryActive(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  REAL_AS(cuDevicePrimaryCtxGetState, CUdevice, unsigned*, int*)(device, &flags, &active);
  return active != 0;
}

// The primary context of a device, which is made with `retain` if it is not there yet. A thread that makes it may wait
// for room, and holds up those that want the same one.
template <typename Retain>
CUresult RetainPrimary(CUdevice device, Retain retain) {
  Attachment* attachment = Attachment::Of(device);
  if (!attachment) return PrimaryActive(device) ? retain() : CountedCreate(device, retain);
  const MutexLock lock(attachment->primary);
  const CUresult result = PrimaryActive(device) ? retain() : CountedCreate(device, retain);
  if (result == CUDA_SUCCESS) ++attachment->primary_uses;
  return result;
}

// Of the primary context that is about to end; its threads work in that again.
void EndReservedGreenContexts(Attachment& attachment) {
  for (const CUgreenCtx reserved : ReservedGreenContexts()) {
    const auto its = FindGreenContext(reserved);
    if (!its || its->device != attachment.Device()) return;
    if (CurrentContext() == its->context) REAL_AS(cuCtxSetCurrent, CUcontext)(its->primary);
    LeaveContextEverywhere(its->context, its->primary);
    attachment.Gates().EndContext(its->context, true, [] { return true; });
    if (LegacyOrder::Any()) TheLegacyOrder().EndAll();  // with streams, threads have worked in one context only
    REAL_AS(cuGreenCtxDestroy, CUgreenCtx)(reserved);
    for (const CUgraph graph : ForgetCapturesOf(its->context)) ForgetGraphMemory(graph);
    ForgetGreenContext(reserved);
  }
  ForgetReservedGreenContexts();
}

// The primary context of a device, which may or may not end with `end`, and does if it is reset.
template <typename End>
CUresult EndPrimary(CUdevice device, bool reset, End end) {
  ForgetThreadGate();
  Attachment* attachment = Attachment::Of(device);
  if (!attachment || !PrimaryActive(device)) return end();
  const MutexLock lock(attachment->primary);
  CUcontext primary = nullptr;
  REAL_AS(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&primary, device);
  REAL_AS(cuDevicePrimaryCtxRelease_v2, CUdevice)(device);
  CUresult result = CUDA_SUCCESS;
  bool ended = false;
  const NextIds below(*attachment);
  const bool last = reset || attachment->primary_uses <= 1;
  if (last) EndReservedGreenContexts(*attachment);
  if (last) DropEventsEverywhere(primary);
  attachment->Gates().EndContext(primary, last, [&] {
    result = end();
    return ended = !PrimaryActive(device);
  });
  if (result == CUDA_SUCCESS) attachment->primary_uses = ended ? 0 : attachment->primary_uses - 1;
  if (ended) Ended(*attachment, primary, below);
  return result;
}

void NoteGreen(CUgreenCtx green, CUdevice device) {
  GreenContext made{.device = device};
  if (REAL_AS(cuCtxFromGreenCtx, CUcontext*, CUgreenCtx)(&made.context, green) != CUDA_SUCCESS) return;
  REAL_AS(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&made.primary, device);
  REAL_AS(cuDevicePrimaryCtxRelease_v2, CUdevice)(device);
  AddGreenContext(green, made);
}

// A green context retains the primary one, which has its memory and its work from now on.
template <typename Destroy>
CUresult DestroyGreen(CUgreenCtx green, Destroy destroy) {
  const auto ended = FindGreenContext(green);
  if (!ended) return destroy();
  Attachment* attachment = Attachment::Of(ended->device);
  if (!attachment) return destroy();
  LeaveContextEverywhere(ended->context, ended->primary);
  attachment->Gates().EndContext(ended->context, true, [] { return true; });
  const CUresult result = EndPrimary(ended->device, false, destroy);
  if (result != CUDA_SUCCESS) return result;
  for (const CUgraph graph : ForgetCapturesOf(ended->context)) ForgetGraphMemory(graph);
  ForgetGreenContext(green);
  return result;
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera;
using namespace tessera::cuda;
using namespace tessera::shim;

#define CTX_CREATE(name)                                                              \
  TESSERA_HOOK name(CUcontext* context, unsigned flags, CUdevice device) {            \
    if (HasReservedSms()) return RefuseBesideReservedSms(#name);                      \
    return CountedCreate(device, [=] { return REAL(name)(context, flags, device); }); \
  }
CTX_CREATE(cuCtxCreate)
CTX_CREATE(cuCtxCreate_v2)

TESSERA_HOOK cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count, unsigned flags,
                            CUdevice device) {
  if (HasReservedSms()) return RefuseBesideReservedSms("cuCtxCreate_v3");
  return CountedCreate(device, [=] { return REAL(cuCtxCreate_v3)(context, params, count, flags, device); });
}

TESSERA_HOOK cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned flags, CUdevice device) {
  if (HasReservedSms()) return RefuseBesideReservedSms("cuCtxCreate_v4");
  return CountedCreate(device, [=] { return REAL(cuCtxCreate_v4)(context, params, flags, device); });
}

#define CTX_DESTROY(name)                                                \
  TESSERA_HOOK name(CUcontext context) {                                 \
    return CountedDestroy(context, [=] { return REAL(name)(context); }); \
  }
CTX_DESTROY(cuCtxDestroy)
CTX_DESTROY(cuCtxDestroy_v2)

TESSERA_HOOK cuCtxAttach(CUcontext* context, unsigned flags) {
  ForgetThreadGate();
  const CUresult result = REAL(cuCtxAttach)(context, flags);
  if (result == CUDA_SUCCESS && context) Attached(*context);
  return result;
}

// The last one ends the context.
TESSERA_HOOK cuCtxDetach(CUcontext context) {
  const auto detach = [=] { return REAL(cuCtxDetach)(context); };
  if (!Detached(context)) return CountedDestroy(context, detach);
  ForgetThreadGate();
  return detach();
}

TESSERA_HOOK cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return RetainPrimary(device, [=] { return REAL(cuDevicePrimaryCtxRetain)(context, device); });
}

#define PRIMARY_END(name, reset)                                          \
  TESSERA_HOOK name(CUdevice device) {                                    \
    return EndPrimary(device, reset, [=] { return REAL(name)(device); }); \
  }
PRIMARY_END(cuDevicePrimaryCtxRelease, false)
PRIMARY_END(cuDevicePrimaryCtxRelease_v2, false)
PRIMARY_END(cuDevicePrimaryCtxReset, true)
PRIMARY_END(cuDevicePrimaryCtxReset_v2, true)

TESSERA_HOOK cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device, unsigned flags) {
  if (HasReservedSms()) return RefuseBesideReservedSms("cuGreenCtxCreate");
  const auto create = [=] { return REAL(cuGreenCtxCreate)(green, resources, device, flags); };
  const CUresult result = RetainPrimary(device, create);
  if (result == CUDA_SUCCESS) NoteGreen(*green, device);
  return result;
}

TESSERA_HOOK cuGreenCtxDestroy(CUgreenCtx green) {
  return DestroyGreen(green, [=] { return REAL(cuGreenCtxDestroy)(green); });
}
