// Memory of the pager's heap that this program shares by IPC handles: other programs under the same daemon may map it.
// The daemon has the descriptors of its chunks; docs/protocol.md ("Memory for others"). Any thread.
#pragma once

#include "cuda/cuda_abi.h"
#include "pager/heap.h"
#include "shim/memory/paging.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The handle of the block around `address`, always the same while the block lives. Pins the block; what of it lies in
// host memory comes back first, which may take until the program has its turn. CUDA_ERROR_OUT_OF_MEMORY, with a line on
// stderr, where there is no place for it on the GPU or the daemon takes no more.
cuda::CUresult ExportMemory(Paging& paging, cuda::CUdeviceptr address, wire::ExportKey* key);

// Whether the key is of this program's memory.
bool IsExport(const wire::ExportKey& key);

// The block is about to be freed: nobody gets it any more. Who has it mapped keeps it. Returns when the daemon has let
// go of its memory.
void Unexport(const pager::Block& block);
// The same of all blocks of a context that has ended, those with ids below `below`.
void UnexportAllOf(cuda::CUcontext context, std::uint64_t below);

// A device is about to have these bytes' GPU memory, for as long as it likes (RDMA): waits as above, and the blocks
// stay where they are while they live.
cuda::CUresult PinForDevice(Paging& paging, cuda::CUdeviceptr address, std::uint64_t bytes);

void AbandonExportsAfterFork();

}  // namespace tessera::shim
