// Managed memory: the driver migrates its pages. What the vGPU may have on the GPU is charged; the rest has its place
// in host memory, where the GPU reaches it, and costs the vGPU nothing.
#include "shim/device/current.h"
#include "shim/load/green_contexts.h"
#include "shim/memory/ledger.h"

using namespace tessera::cuda;
using namespace tessera::shim;
using tessera::wire::PinReason;

namespace {

constexpr CUdevice kHost = -1;  // CU_DEVICE_CPU

// Keeps the pages in host memory unless the program says otherwise later. A driver or GPU without such advice answers
// with an error; then the pages are the driver's to place, and are charged when they are seen on the GPU.
void KeepOnHost(CUdeviceptr address, std::uint64_t bytes) {
  const auto advise = REAL_AS(cuMemAdvise, CUdeviceptr, std::size_t, CUmem_advise, CUdevice);
  if (advise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost) != CUDA_SUCCESS) return;
  CUdevice device = 0;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) == CUDA_SUCCESS)
    advise(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device);
}

}  // namespace

TESSERA_HOOK cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const CUresult result = REAL(cuMemAllocManaged)(address, bytes, flags);  // no page is on the GPU yet
  Attachment* attachment = result == CUDA_SUCCESS ? CurrentAttachment() : nullptr;
  if (!attachment) return result;
  const std::uint64_t charge = attachment->Room().TakePinnedAtMost(ChargeOf(bytes), PinReason::kManaged);
  if (charge < bytes) KeepOnHost(*address + charge, bytes - charge);
  if (charge > 0) Remember(*address, {&attachment->Room(), charge, AllocatingContext(), PinReason::kManaged});
  return result;
}
