#pragma once

#include <cstdint>

#include "cuda/cuda_abi.h"
#include "soft/device/address_map.h"

namespace tessera::soft {

// Memory of the host that a context knows: pinned (kHost), managed (kManaged) or the program's own (kRegistered).
// None of it counts against the device.

// CUDA_ERROR_INVALID_VALUE for 0 bytes. Where `fd` is given it is mapped, which makes kImported device memory.
cuda::CUresult AllocateHost(Context& context, MemoryKind kind, std::uint64_t bytes, unsigned flags, void** address,
                            int fd = -1);
// CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED if any of it is known already.
cuda::CUresult RegisterHost(Context& context, void* address, std::uint64_t bytes, unsigned flags);
// Frees what begins at `address` and is of this kind; CUDA_ERROR_INVALID_VALUE if nothing is. The caller made sure that
// no work uses it. Not for memory of heaps and cuMemMap.
cuda::CUresult FreeMapping(std::uint64_t address, MemoryKind kind);

}  // namespace tessera::soft
