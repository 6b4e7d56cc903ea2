// Allocations by address: counted against memory.max.
#include "shim/hook.h"
#include "shim/ledger.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

std::uint64_t KeyOf(CUdeviceptr address) { return address; }

// cuMemAllocPitch pads rows as it likes (to 512 bytes on every device seen): the charge is made for such rows before,
// because a refusal must come before the memory is taken.
std::uint64_t PitchedBytes(size_t width, size_t height) {
  constexpr size_t kRow = 512;
  size_t bytes = 0;
  if (width > SIZE_MAX - kRow || __builtin_mul_overflow((width + kRow - 1) / kRow * kRow, height, &bytes))
    return SIZE_MAX;
  return bytes;
}

}  // namespace

TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return Counted(
      CurrentAttachment(), CurrentContext(), ChargeOf(bytes), [=] { return REAL(cuMemAlloc_v2)(address, bytes); },
      [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemFree_v2(CUdeviceptr address) {
  return CountedFree(KeyOf(address), [=] { return REAL(cuMemFree_v2)(address); });
}

TESSERA_HOOK cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
  return Counted(
      CurrentAttachment(), CurrentContext(), ChargeOf(PitchedBytes(width, height)),
      [=] { return REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element); },
      [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return Counted(
      CurrentAttachment(), CurrentContext(), ChargeOf(bytes),
      [=] { return REAL(cuMemAllocManaged)(address, bytes, flags); }, [=] { return KeyOf(*address); });
}

// The API of CUDA 3 with 32-bit addresses.
TESSERA_HOOK cuMemAlloc(unsigned* address, unsigned bytes) {
  return Counted(
      CurrentAttachment(), CurrentContext(), ChargeOf(bytes), [=] { return REAL(cuMemAlloc)(address, bytes); },
      [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemFree(unsigned address) {
  return CountedFree(KeyOf(address), [=] { return REAL(cuMemFree)(address); });
}

TESSERA_HOOK cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height, unsigned element) {
  return Counted(
      CurrentAttachment(), CurrentContext(), ChargeOf(PitchedBytes(width, height)),
      [=] { return REAL(cuMemAllocPitch)(address, pitch, width, height, element); }, [=] { return KeyOf(*address); });
}

// ---- stream-ordered: the pool is the device's, not the context's ----

#define ALLOC_ASYNC(name)                                                                                  \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUstream stream) {                                 \
    return Counted(                                                                                        \
        CurrentAttachment(), nullptr, ChargeOf(bytes), [=] { return REAL(name)(address, bytes, stream); }, \
        [=] { return KeyOf(*address); });                                                                  \
  }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(name)                                                                                    \
  TESSERA_HOOK name(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {                    \
    return Counted(                                                                                              \
        CurrentAttachment(), nullptr, ChargeOf(bytes), [=] { return REAL(name)(address, bytes, pool, stream); }, \
        [=] { return KeyOf(*address); });                                                                        \
  }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

#define FREE_ASYNC(name)                                                             \
  TESSERA_HOOK name(CUdeviceptr address, CUstream stream) {                          \
    return CountedFree(KeyOf(address), [=] { return REAL(name)(address, stream); }); \
  }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)
