// Allocations by address: counted against memory.max, and out of the pager's heap where memory may be swapped. Those in
// the order of streams are in memory_pools.cc.
#include "shim/device/current.h"
#include "shim/load/green_contexts.h"
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
      CurrentRoom(), AllocatingContext(), ChargeOf(bytes), PinReason::kUnpaged,
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
      CurrentRoom(), AllocatingContext(), ChargeOf(PitchedBytes(width, height)), PinReason::kUnpaged,
      [=] { return REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element); },
      [=] { return KeyOf(*address); });
}

// The API of CUDA 3 with 32-bit addresses.
TESSERA_HOOK cuMemAlloc(unsigned* address, unsigned bytes) {
  return Counted(
      CurrentRoom(), AllocatingContext(), ChargeOf(bytes), PinReason::kUnpaged,
      [=] { return REAL(cuMemAlloc)(address, bytes); }, [=] { return KeyOf(*address); });
}

TESSERA_HOOK cuMemFree(unsigned address) {
  return CountedFree(KeyOf(address), [=] { return REAL(cuMemFree)(address); });
}

TESSERA_HOOK cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height, unsigned element) {
  return Counted(
      CurrentRoom(), AllocatingContext(), ChargeOf(PitchedBytes(width, height)), PinReason::kUnpaged,
      [=] { return REAL(cuMemAllocPitch)(address, pitch, width, height, element); }, [=] { return KeyOf(*address); });
}
