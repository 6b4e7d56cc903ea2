// What stream-ordered memory is charged for: all that its pool has reserved, because a pool keeps memory that was
// freed, and gives it out again without asking the driver for more. Any thread.
#pragma once

#include <cstdint>

#include "cuda/cuda_abi.h"
#include "shim/memory/arrival.h"
#include "shim/memory/room_account.h"

namespace tessera::shim {

// The pool that cuMemAllocAsync takes memory from in the calling thread's current context; null if there is none.
cuda::CUmemoryPool CurrentPool();

// Allocates by `make` bytes of `pool` that are charged to `room` (null: not managed) as far as the pool has not
// reserved them yet; `address` says where they are afterwards. CUDA_ERROR_OUT_OF_MEMORY without calling `make` if that
// would pass memory.max.
template <typename Make>
cuda::CUresult AllocateFromPool(RoomAccount* room, cuda::CUmemoryPool pool, std::uint64_t bytes,
                                const cuda::CUdeviceptr* address, Make make);
// Frees by `free` what was allocated so. What the pool keeps stays charged.
template <typename Free>
cuda::CUresult FreeToPool(cuda::CUdeviceptr address, Free free);

// Gives back what pools have given back to the driver. They do that when work has ended that they waited for.
void ReviewPools();
// The same where a pool keeps something. Costs a load where none does.
void ReviewPoolsThatKeep();

namespace pool_charges {

// The parts of the templates above: `charge` is the part of the pool that an allocation uses.
bool Take(RoomAccount& room, cuda::CUmemoryPool pool, std::uint64_t charge);
void Keep(cuda::CUmemoryPool pool, std::uint64_t charge, cuda::CUdeviceptr address);
void Drop(cuda::CUmemoryPool pool, std::uint64_t charge);

struct Piece {
  cuda::CUmemoryPool pool = nullptr;
  std::uint64_t charge = 0;  // 0: none that is known
};
Piece Forget(cuda::CUdeviceptr address);

std::uint64_t ChargeFor(std::uint64_t bytes);

// From now on the driver is not asked about `pool`, which is about to be destroyed, while allocations of it live on.
class EndedPool {
 public:
  explicit EndedPool(cuda::CUmemoryPool pool);
  ~EndedPool();
  EndedPool(const EndedPool&) = delete;
  EndedPool& operator=(const EndedPool&) = delete;
  void Undo() const;  // it was not destroyed

 private:
  const cuda::CUmemoryPool pool_;
  const cuda::CUmemoryPool name_;  // of what lives on: no pool's handle
};

}  // namespace pool_charges

template <typename Make>
cuda::CUresult AllocateFromPool(RoomAccount* room, cuda::CUmemoryPool pool, std::uint64_t bytes,
                                const cuda::CUdeviceptr* address, Make make) {
  const std::uint64_t charge = pool_charges::ChargeFor(bytes);
  if (!room || charge == 0) return make();
  if (!pool_charges::Take(*room, pool, charge)) return cuda::CUDA_ERROR_OUT_OF_MEMORY;
  const cuda::CUresult result = MakeWithRoom(room, make);
  if (result == cuda::CUDA_SUCCESS) {
    pool_charges::Keep(pool, charge, *address);
  } else {
    pool_charges::Drop(pool, charge);
  }
  return result;
}

template <typename Free>
cuda::CUresult FreeToPool(cuda::CUdeviceptr address, Free free) {
  // Before it is free: another thread may be given the same address then.
  const pool_charges::Piece piece = pool_charges::Forget(address);
  const cuda::CUresult result = free();
  if (piece.charge == 0) return result;
  if (result == cuda::CUDA_SUCCESS) {
    pool_charges::Drop(piece.pool, piece.charge);
  } else {
    pool_charges::Keep(piece.pool, piece.charge, address);
  }
  return result;
}

}  // namespace tessera::shim
