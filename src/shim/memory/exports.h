// Memory of the pager's heap that this program shares by IPC handles: other programs under the same daemon may map it.
// The daemon has the descriptors of its chunks; docs/protocol.md ("Memory for others"). Any thread.
#pragma once

#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "shim/memory/paging.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The key of the block around `address`, always the same while the block lives. Pins the block. Chunks of it in host
// memory are brought back first, which may take until the program has its turn. CUDA_ERROR_OUT_OF_MEMORY, with a line
// on stderr, where the GPU has no place for it, some of it is stranded in host memory, or the daemon takes no more.
cuda::CUresult ExportMemory(Paging& paging, cuda::CUdeviceptr address, wire::ExportKey* key);

// Whether the key is of this program's memory.
bool IsExport(const wire::ExportKey& key);

// The block is about to be freed: no more programs can map it. Those that have it mapped keep it. Returns when the
// daemon has let go of its memory.
void Unexport(const pager::Block& block);
// The same of all blocks of a context that has ended, those with ids below `below`.
void UnexportAllOf(cuda::CUcontext context, std::uint64_t below);

// A device is about to use the GPU memory of these bytes, for any length of time (RDMA). Pins the blocks as above, for
// as long as they live; where it fails, none that was not pinned before.
cuda::CUresult PinForDevice(Paging& paging, cuda::CUdeviceptr address, std::uint64_t bytes);

void AbandonExportsAfterFork();

}  // namespace tessera::shim
