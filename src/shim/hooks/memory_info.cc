// The memory that a program sees is its vGPU's.
#include <algorithm>

#include "shim/device/current.h"
#include "shim/memory/paging.h"
#include "shim/memory/pool_charges.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

template <typename Size>
CUresult MemGetInfo(CUresult (*real)(Size*, Size*), Size* free, Size* total) {
  const CUresult result = real(free, total);
  Attachment* attachment = result == CUDA_SUCCESS ? CurrentAttachment() : nullptr;
  if (!attachment) return result;
  if (attachment->Pager()) attachment->Pager()->Ordered().FreeReached();
  ReviewPoolsThatKeep();
  // Without swapping, never more than the device itself has: other programs may hold memory that this vGPU was not
  // promised.
  const bool swaps = attachment->Pager() != nullptr;
  const std::uint64_t max = attachment->Memory().Max(), unused = attachment->Memory().Free();
  // One allocation can have all of it.
  const std::uint64_t left = unused - std::min(unused, swaps ? attachment->Pager()->Lost() : 0);
  if (free) *free = static_cast<Size>(swaps ? left : std::min<std::uint64_t>(*free, left));
  if (total) *total = static_cast<Size>(swaps ? max : std::min<std::uint64_t>(*total, max));
  return result;
}

template <typename Size>
CUresult DeviceTotalMem(CUresult (*real)(Size*, CUdevice), Size* bytes, CUdevice device) {
  const CUresult result = real(bytes, device);
  Attachment* attachment = result == CUDA_SUCCESS ? Attachment::Of(device) : nullptr;
  if (attachment) {
    const std::uint64_t max = attachment->Memory().Max();
    *bytes = static_cast<Size>(attachment->Pager() ? max : std::min<std::uint64_t>(*bytes, max));
  }
  return result;
}

}  // namespace

TESSERA_HOOK cuMemGetInfo_v2(size_t* free, size_t* total) { return MemGetInfo(REAL(cuMemGetInfo_v2), free, total); }
TESSERA_HOOK cuMemGetInfo(unsigned* free, unsigned* total) { return MemGetInfo(REAL(cuMemGetInfo), free, total); }
TESSERA_HOOK cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return DeviceTotalMem(REAL(cuDeviceTotalMem_v2), bytes, device);
}
TESSERA_HOOK cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  return DeviceTotalMem(REAL(cuDeviceTotalMem), bytes, device);
}
