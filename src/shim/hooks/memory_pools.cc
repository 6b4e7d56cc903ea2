// Allocations in the order of streams, and the pools that they come from: out of the pager's heap where memory may be
// swapped. Memory of pools that other processes or places share is the driver's.
#include "shim/device/current.h"
#include "shim/device/stream_use.h"
#include "shim/gate/capture.h"
#include "shim/graph/make_memory_node.h"
#include "shim/memory/ledger.h"
#include "shim/memory/paging.h"
#include "shim/memory/pool_charges.h"
#include "shim/order/stream_pools.h"
#include "shim/use/graph_memory.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// A stream that captures takes allocations and frees for nodes of its graph.
bool IsCapturing(CUstream stream, CUresult (*ask)(CUstream, CUstreamCaptureStatus*)) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return AnyCapture() && (ask(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

// The pool of the current device, if its memory can be moved.
StreamPool* CurrentStreamPool() {
  const Attachment* attachment = CurrentAttachment();
  return attachment && attachment->Pager() ? CurrentPoolOf(attachment->Device()) : nullptr;
}

Paging* PagingForPools() {
  const Attachment* attachment = CurrentAttachment();
  return attachment ? attachment->Pager() : nullptr;
}

// An allocation in a capture; `paging` null: the driver makes it.
template <typename Make>
CUresult Captured(Paging* paging, CUdeviceptr* address, std::uint64_t bytes, CUstream stream, bool per_thread,
                  Make make) {
  if (paging) {
    if (const auto made = CaptureAllocation(*paging, bytes, stream, per_thread, address)) return *made;
  }
  const CUresult result = make();
  if (result == CUDA_SUCCESS) NoteGraphMemory();
  return result;
}

bool Movable(const CUmemPoolProps& properties) {
  return properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.usage == 0;
}

}  // namespace

// ---- allocations: the pool is the device's, not the context's ----

// In a capture an allocation becomes a node of the graph, which has the memory, whatever the pool; even a question
// about the pool would end the capture.

#define ALLOC_ASYNC(name, suffix, per_thread)                                                                          \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUstream stream) {                                             \
    const bool captures = IsCapturing(stream, REAL_AS(cuStreamIsCapturing##suffix, CUstream, CUstreamCaptureStatus*)); \
    if (!address || bytes == 0) return REAL(name)(address, bytes, stream);                                             \
    if (const CUresult result = BeforeUse(stream, per_thread); result != CUDA_SUCCESS) return result;                  \
    if (captures)                                                                                                      \
      return Captured(PagingForPools(), address, bytes, stream, per_thread,                                            \
                      [=] { return REAL(name)(address, bytes, stream); });                                             \
    if (StreamPool* movable = CurrentStreamPool())                                                                     \
      return movable->Memory().Allocate(*movable, bytes, NameOf(stream, per_thread), address);                         \
    return AllocateFromPool(CurrentRoom(), CurrentPool(), bytes, address,                                              \
                            [=] { return REAL(name)(address, bytes, stream); });                                       \
  }
ALLOC_ASYNC(cuMemAllocAsync, , false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, _ptsz, true)

#define ALLOC_FROM_POOL(name, suffix, per_thread)                                                                      \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {                          \
    const bool captures = IsCapturing(stream, REAL_AS(cuStreamIsCapturing##suffix, CUstream, CUstreamCaptureStatus*)); \
    if (!address || bytes == 0) return REAL(name)(address, bytes, pool, stream);                                       \
    if (const CUresult result = BeforeUse(stream, per_thread); result != CUDA_SUCCESS) return result;                  \
    StreamPool* movable = PoolOf(pool);                                                                                \
    if (captures)                                                                                                      \
      return Captured(movable ? &movable->Memory().Pager() : nullptr, address, bytes, stream, per_thread,              \
                      [=] { return REAL(name)(address, bytes, pool, stream); });                                       \
    if (movable) return movable->Memory().Allocate(*movable, bytes, NameOf(stream, per_thread), address);              \
    return AllocateFromPool(CurrentRoom(), pool, bytes, address,                                                       \
                            [=] { return REAL(name)(address, bytes, pool, stream); });                                 \
  }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, , false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, _ptsz, true)

// Memory of the other allocators may be freed in the order of a stream, too. A stream that captures takes it for the
// memory of a graph, and the driver refuses it.
#define FREE_ASYNC(name, suffix, per_thread)                                                                       \
  TESSERA_HOOK name(CUdeviceptr address, CUstream stream) {                                                        \
    if (const CUresult result = BeforeUse(stream, per_thread); result != CUDA_SUCCESS) return result;              \
    Paging* paging = Paging::Of(address);                                                                          \
    if (paging) {                                                                                                  \
      if (!IsCapturing(stream, REAL_AS(cuStreamIsCapturing##suffix, CUstream, CUstreamCaptureStatus*)))            \
        return paging->Ordered().Free(address, NameOf(stream, per_thread));                                        \
      if (const auto freed = CaptureFree(address, stream, per_thread)) return *freed;                              \
    }                                                                                                              \
    return CountedFree(address, [=] { return FreeToPool(address, [=] { return REAL(name)(address, stream); }); }); \
  }
FREE_ASYNC(cuMemFreeAsync, , false)
FREE_ASYNC(cuMemFreeAsync_ptsz, _ptsz, true)

// ---- pools ----

TESSERA_HOOK cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = REAL(cuMemPoolCreate)(pool, properties);
  if (result != CUDA_SUCCESS || !Movable(*properties)) return result;
  const Attachment* attachment = Attachment::Of(properties->location.id);
  if (attachment && attachment->Pager()) AddPool(attachment->Pager()->Ordered(), *pool, properties->maxSize);
  return result;
}

TESSERA_HOOK cuMemPoolDestroy(CUmemoryPool pool) {
  StreamPool* ended = nullptr;
  const pool_charges::EndedPool charges(pool);
  const CUresult result = EndPool(pool, REAL(cuMemPoolDestroy), &ended);
  if (result != CUDA_SUCCESS) charges.Undo();
  if (ended) ended->Memory().Trim(*ended, 0);
  ForgetCurrentPools();  // a device whose pool it was has its default pool
  return result;
}

TESSERA_HOOK cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = REAL(cuDeviceSetMemPool)(device, pool);
  ForgetCurrentPools();
  return result;
}

TESSERA_HOOK cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult result = REAL(cuMemSetMemPool)(location, type, pool);
  ForgetCurrentPools();
  return result;
}

TESSERA_HOOK cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const StreamPool* movable = value ? PoolOf(pool) : nullptr;
  if (movable && movable->Get(attribute, value)) return CUDA_SUCCESS;
  return REAL(cuMemPoolGetAttribute)(pool, attribute, value);
}

TESSERA_HOOK cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const CUresult result = REAL(cuMemPoolSetAttribute)(pool, attribute, value);
  StreamPool* movable = result == CUDA_SUCCESS ? PoolOf(pool) : nullptr;
  if (movable) movable->Set(attribute, value);
  return result;
}

TESSERA_HOOK cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = REAL(cuMemPoolTrimTo)(pool, keep);
  StreamPool* movable = result == CUDA_SUCCESS ? PoolOf(pool) : nullptr;
  if (movable) movable->Memory().Trim(*movable, keep);
  ReviewPools();
  return result;
}

// A device that reaches the pool reaches all of the heap, as it does after cuCtxEnablePeerAccess. If it may no more,
// the driver's pool says so.
TESSERA_HOOK cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* accesses, size_t count) {
  const CUresult result = REAL(cuMemPoolSetAccess)(pool, accesses, count);
  StreamPool* movable = result == CUDA_SUCCESS ? PoolOf(pool) : nullptr;
  for (size_t i = 0; movable && i < count; ++i) {
    const CUmemAccessDesc& each = accesses[i];
    Paging& paging = movable->Memory().Pager();
    if (each.location.type != CU_MEM_LOCATION_TYPE_DEVICE || each.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
        Reaches(paging, each.location.id))
      continue;
    if (const CUresult reaches = AddPeer(paging, each.location.id); reaches != CUDA_SUCCESS) return reaches;
  }
  return result;
}
