// Blocks of the pager's heap that the program has told the driver to copy and fill synchronously
// (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), because a device or another program reads them beside CUDA. Any thread.
#pragma once

#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

// Sets or clears it for the block around `address`. CUDA_ERROR_INVALID_VALUE where none is. A block that has it is
// pinned as long as it lives: the next thing that GPUDirect code does is to register its address with a device, which
// the shim cannot see (nvidia-peermem, GDRCopy).
cuda::CUresult SetSyncMemops(Paging& paging, cuda::CUdeviceptr address, bool on);
bool HasSyncMemops(cuda::CUdeviceptr address);
// The block is about to be freed.
void ForgetSyncMemops(const pager::Block& block);
void ForgetSyncMemopsOf(cuda::CUcontext context);

// After a copy or memset without a stream of its own has returned `result`: waits for `stream`, on which it was made,
// if the program has any such block. Returns the call's result.
cuda::CUresult AfterMemop(cuda::CUresult result, cuda::CUstream stream);

}  // namespace tessera::shim
