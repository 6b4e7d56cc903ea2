// The memory pools of the process whose memory can be moved, by their handles. Any thread.
#pragma once

#include <vector>

#include "shim/order/stream_pool.h"

namespace tessera::shim {

// The pool of this handle, which the driver has made, is `memory`'s from now on; `max_bytes` as in CUmemPoolProps.
void AddPool(StreamMemory& memory, cuda::CUmemoryPool handle, std::uint64_t max_bytes);
// Has the driver destroy the pool. `ended` is the pool if its memory was not the driver's: its blocks live on until
// they are freed, and it keeps none.
cuda::CUresult EndPool(cuda::CUmemoryPool handle, cuda::CUresult (*destroy)(cuda::CUmemoryPool), StreamPool** ended);

// The pool of this handle; null: the driver has its memory.
StreamPool* PoolOf(cuda::CUmemoryPool handle);
// The pool from which cuMemAllocAsync takes memory on `device`. Asks the driver once, until ForgetCurrentPools.
StreamPool* CurrentPoolOf(cuda::CUdevice device);
// Devices may have got other pools.
void ForgetCurrentPools();

// The pools whose blocks `memory` has, also those that were destroyed and have blocks.
std::vector<StreamPool*> PoolsOf(const StreamMemory& memory);

}  // namespace tessera::shim
