// Memory of other programs that this one has mapped by their IPC handles. It is not charged, as the driver's is not,
// and stays mapped even if its owner frees it or ends. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The side that maps memory: the GPU of its current context, as the daemon counts, and that GPU's device.
struct Importer {
  std::uint32_t gpu = 0;
  cuda::CUdevice device = 0;
};

// Maps the memory for the calling thread's current context, or counts one more use of it and gives the same address.
// For another context of the process it is mapped again, at an address of its own. The memory may be on a GPU that the
// process has not used yet. While the daemon is replaced, waits for the next one to know of the memory, for `patience`
// at most. CUDA_ERROR_INVALID_VALUE where the daemon does not give it or the process does not see its GPU,
// CUDA_ERROR_MAP_FAILED where there is no daemon, each with a line on stderr; else the driver's error.
cuda::CUresult ImportMemory(const Importer& importer, const wire::ExportKey& key, cuda::CUdeviceptr* address,
                            Nanos patience = 10 * kSecond);

// The last use of memory that begins at `address` unmaps it, after the work of its context; while a stream captures,
// where waiting is forbidden, that is done later. False: no import begins there.
bool CloseImport(cuda::CUdeviceptr address);
// No import has this id, or a higher one, yet.
std::uint64_t NextImportId();
// The context has ended: unmaps its imports with ids below `below`, which was NextImportId() before it ended. Another
// context may have its address by now.
void CloseImportsOf(cuda::CUcontext context, std::uint64_t below);

// The imported block that `address` lies in, and the device that its memory is on.
std::optional<pager::Block> ImportAt(cuda::CUdeviceptr address, cuda::CUdevice* device);

// Whether kernels and copies of `device` can use the imported memory at `address`.
bool ImportReaches(cuda::CUdeviceptr address, cuda::CUdevice device);

void AbandonImportsAfterFork();

}  // namespace tessera::shim
