// Allocations by address: counted against memory.max, and out of the pager's heap where memory may be swapped.
#include "shim/device/current.h"
#include "shim/gate/capture.h"
#include "shim/memory/ledger.h"
#include "shim/memory/paging.h"
#include "shim/memory/pool_charges.h"

using namespace tessera::cuda;
using namespace tessera::shim;
using tessera::wire::PinReason;

namespace {

std::uint64_t KeyOf(CUdeviceptr address) { return address; }

Paging* CurrentPaging() {
  Attachment* attachment = CurrentAttachment();
  return attachment ? attachment->Pager() : nullptr;
}

// cuMemAllocPitch pads rows as it likes (to 512 bytes on every device seen): the charge is made for such rows before,
// because a refusal must come before the memory is taken. The pager's heap does the same.
std::uint64_t PitchedBytes(size_t width, size_t height) {
  constexpr size_t kRow = 512;
  size_t bytes = 0;
  if (width > SIZE_MAX - kRow || __builtin_mul_overflow((width + kRow - 1) / kRow * kRow, height, &bytes))
    return SIZE_MAX;
  return bytes;
}

}  // namespace

TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  if (Paging* paging = CurrentPaging()) return paging->Allocate(bytes, address);
  return Counted(
      CurrentRoom(), CurrentContext(), ChargeOf(bytes), PinReason::kUnpaged,
      [=] { return REAL(cuMemAlloc_v2)(address, bytes); }, [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemFree_v2(CUdeviceptr address) {
  if (Paging* paging = Paging::Of(address)) return paging->Free(address);
  return CountedFree(KeyOf(address), [=] { return FreeToPool(address, [=] { return REAL(cuMemFree_v2)(address); }); });
}

TESSERA_HOOK cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
  if (Paging* paging = CurrentPaging()) {
    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
      return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t bytes = PitchedBytes(width, height);
    const CUresult result = bytes == SIZE_MAX ? CUDA_ERROR_OUT_OF_MEMORY : paging->Allocate(bytes, address);
    if (result == CUDA_SUCCESS) *pitch = bytes / height;
    return result;
  }
  return Counted(
      CurrentRoom(), CurrentContext(), ChargeOf(PitchedBytes(width, height)), PinReason::kUnpaged,
      [=] { return REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element); },
      [=] { return KeyOf(*address); });
}

// The API of CUDA 3 with 32-bit addresses.
TESSERA_HOOK cuMemAlloc(unsigned* address, unsigned bytes) {
  return Counted(
      CurrentRoom(), CurrentContext(), ChargeOf(bytes), PinReason::kUnpaged,
      [=] { return REAL(cuMemAlloc)(address, bytes); }, [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemFree(unsigned address) {
  return CountedFree(KeyOf(address), [=] { return REAL(cuMemFree)(address); });
}

TESSERA_HOOK cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height, unsigned element) {
  return Counted(
      CurrentRoom(), CurrentContext(), ChargeOf(PitchedBytes(width, height)), PinReason::kUnpaged,
      [=] { return REAL(cuMemAllocPitch)(address, pitch, width, height, element); }, [=] { return KeyOf(*address); });
}

// ---- stream-ordered: the pool is the device's, not the context's ----

#define ALLOC_ASYNC(name)                                                        \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUstream stream) {       \
    return AllocateFromPool(CurrentRoom(), CurrentPool(), bytes, address,        \
                            [=] { return REAL(name)(address, bytes, stream); }); \
  }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(name)                                                                 \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) { \
    return AllocateFromPool(CurrentRoom(), pool, bytes, address,                              \
                            [=] { return REAL(name)(address, bytes, pool, stream); });        \
  }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

TESSERA_HOOK cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = REAL(cuMemPoolTrimTo)(pool, keep);
  ReviewPools();
  return result;
}

// Memory of the other allocators may be freed in the order of a stream, too. A stream that captures takes it for the
// memory of a graph, and the driver refuses it.
bool IsCapturing(CUstream stream, CUresult (*ask)(CUstream, CUstreamCaptureStatus*)) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return AnyCapture() && (ask(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

#define FREE_ASYNC(name, suffix)                                                                                \
  TESSERA_HOOK name(CUdeviceptr address, CUstream stream) {                                                     \
    Paging* paging = Paging::Of(address);                                                                       \
    if (paging && !IsCapturing(stream, REAL_AS(cuStreamIsCapturing##suffix, CUstream, CUstreamCaptureStatus*))) \
      return paging->FreeAsync(address, stream, REAL_AS(cuEventRecord##suffix, CUevent, CUstream));             \
    return CountedFree(KeyOf(address),                                                                          \
                       [=] { return FreeToPool(address, [=] { return REAL(name)(address, stream); }); });       \
  }
FREE_ASYNC(cuMemFreeAsync, )
FREE_ASYNC(cuMemFreeAsync_ptsz, _ptsz)
