// Memory of cuMemCreate that goes to the host and comes back to the same address, as vLLM's sleep mode has it.
#pragma once

#include "driver.h"

// One tensor's. Whoever works on it waits for that before it sleeps.
class Mapped {
 public:
  CUdeviceptr Make(size_t bytes) {
    bytes_ = (bytes + kGranule - 1) / kGranule * kGranule;
    CU(cuMemAddressReserve(&address_, bytes_, 0, 0, 0));
    Back();
    return address_;
  }

  void Sleep() {
    if (bytes_ == 0) return;
    if (host_ == nullptr)
      CU(cuMemHostAlloc(&host_, bytes_, 0));  // kept for the next time, as PyTorch's pinned memory is
    CU(cuMemcpyDtoH(host_, address_, bytes_));
    CU(cuMemUnmap(address_, bytes_));
    CU(cuMemRelease(handle_));
  }

  void Wake() {
    if (bytes_ == 0) return;
    Back();
    CU(cuMemcpyHtoD(address_, host_, bytes_));
  }

 private:
  static constexpr size_t kGranule = 2 * kMiB;

  void Back() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CU(cuCtxGetDevice(&prop.location.id));
    CU(cuMemCreate(&handle_, bytes_, &prop, 0));
    CU(cuMemMap(address_, bytes_, 0, handle_, 0));
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemSetAccess(address_, bytes_, &access, 1));
  }

  size_t bytes_ = 0;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  void* host_ = nullptr;
};
