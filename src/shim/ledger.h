// What this process has allocated: so that a free gives back what the allocation took.
#pragma once

#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

class Attachment;

// What an allocation of `bytes` is charged as. The driver takes device memory in 2 MiB pages; smaller allocations share
// pages, in units of 512 bytes (measured: docs/hardware-log.md).
std::uint64_t ChargeOf(std::uint64_t bytes);

// Device pointers, arrays and memory handles live in one table: their values never collide, each is an address or an
// opaque word of the driver's. `context`: the one whose end frees the allocation, null for what outlives contexts.
void Remember(std::uint64_t key, Attachment& attachment, std::uint64_t charge, cuda::CUcontext context);
// Gives back what was charged for `key`; nothing if it is unknown (memory of other processes, made before, not
// counted).
void GiveBack(std::uint64_t key);

// Gives back what a context that has ended takes along.
void GiveBackOf(cuda::CUcontext context);

// Allocates by `make` what is charged as `charge` to `attachment` (null: not managed), and remembers it under what
// `key()` says afterwards. CUDA_ERROR_OUT_OF_MEMORY without calling the driver if it would pass memory.max.
template <typename Make, typename Key>
cuda::CUresult Counted(Attachment* attachment, cuda::CUcontext context, std::uint64_t charge, Make make, Key key);

}  // namespace tessera::shim

#include "shim/attachment.h"

namespace tessera::shim {

template <typename Make, typename Key>
cuda::CUresult Counted(Attachment* attachment, cuda::CUcontext context, std::uint64_t charge, Make make, Key key) {
  if (!attachment || charge == 0) return make();
  if (!attachment->TakeMemory(charge)) return cuda::CUDA_ERROR_OUT_OF_MEMORY;
  const cuda::CUresult result = make();
  if (result == cuda::CUDA_SUCCESS) {
    Remember(key(), *attachment, charge, context);
  } else {
    attachment->GiveMemory(charge);
  }
  return result;
}

}  // namespace tessera::shim
