// The functions of CUDA's virtual memory management that the pager calls. In programs they are the real driver's, in
// tests those of a fake.
#pragma once

#include <cstddef>

#include "cuda/cuda_abi.h"

namespace tessera::pager {

struct Driver {
  using Handle = cuda::CUmemGenericAllocationHandle;

  cuda::CUresult (*AddressReserve)(cuda::CUdeviceptr*, std::size_t bytes, std::size_t alignment, cuda::CUdeviceptr hint,
                                   unsigned long long flags);
  cuda::CUresult (*AddressFree)(cuda::CUdeviceptr, std::size_t bytes);
  cuda::CUresult (*Create)(Handle*, std::size_t bytes, const cuda::CUmemAllocationProp*, unsigned long long flags);
  cuda::CUresult (*Release)(Handle);
  cuda::CUresult (*Map)(cuda::CUdeviceptr, std::size_t bytes, std::size_t offset, Handle, unsigned long long flags);
  cuda::CUresult (*Unmap)(cuda::CUdeviceptr, std::size_t bytes);
  cuda::CUresult (*SetAccess)(cuda::CUdeviceptr, std::size_t bytes, const cuda::CUmemAccessDesc*, std::size_t count);
  cuda::CUresult (*Export)(void* fd, Handle, cuda::CUmemAllocationHandleType, unsigned long long flags);
  cuda::CUresult (*Import)(Handle*, void* fd, cuda::CUmemAllocationHandleType);
};

}  // namespace tessera::pager
