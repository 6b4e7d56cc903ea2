// Memory pools (CUmemoryPool) whose memory comes from the pager's heap, so that it can be moved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"

namespace tessera::shim {

class StreamMemory;

// A memory pool as the program sees it: how much of it is in use, how much it keeps, and its blocks that nobody uses.
// The driver has a pool of the same handle, which stays empty. Thread-safe; never destroyed before its blocks are gone.
class StreamPool {
 public:
  // `memory` has the blocks, and outlives the pool. `max_bytes`: as in CUmemPoolProps; 0: no maximum.
  StreamPool(StreamMemory& memory, cuda::CUmemoryPool handle, std::uint64_t max_bytes)
      : memory_(memory), handle_(handle), max_bytes_(max_bytes) {}
  StreamPool(const StreamPool&) = delete;

  StreamMemory& Memory() const { return memory_; }
  cuda::CUmemoryPool Handle() const { return handle_; }

  // A block of so many bytes of addresses is to be in use from now on. False: that would pass the maximum. Refused:
  // there is none.
  bool Use(std::uint64_t bytes);
  void Refused(std::uint64_t bytes);
  // The program has freed a block.
  void Unuse(const pager::Block& block);
  // The heap has made a block of so many bytes of addresses for the pool, or has one back.
  void Reserve(std::uint64_t bytes);
  void Return(const pager::Block& block);
  // Whether it has no block at all.
  bool Empty() const;

  // A block that the program freed, and whose work has ended. False: it would be more than the pool is to keep.
  bool Keep(const pager::Block& block);
  bool Keeps(const pager::Block& block) const;
  std::optional<pager::Block> TakeKept(std::uint64_t bytes);
  // Takes kept blocks until the pool has no more than `bytes`, as far as there are any. Return follows for each.
  std::vector<pager::Block> Release(std::uint64_t bytes);
  // All blocks are gone.
  void Forget();

  // As cuMemPoolGetAttribute and cuMemPoolSetAttribute, whose arguments are valid; false: the driver's own pool knows.
  bool Get(cuda::CUmemPool_attribute attribute, void* value) const;
  void Set(cuda::CUmemPool_attribute attribute, const void* value);

 private:
  std::uint64_t ReservedLocked() const TESSERA_REQUIRES(mutex_);

  StreamMemory& memory_;
  const cuda::CUmemoryPool handle_;
  const std::uint64_t max_bytes_;

  mutable ForkMutex mutex_;  // taken after every other mutex
  std::uint64_t used_ TESSERA_GUARDED_BY(mutex_) = 0, used_high_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_ TESSERA_GUARDED_BY(mutex_) = 0, reserved_high_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t threshold_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::multimap<std::uint64_t, pager::Block> kept_ TESSERA_GUARDED_BY(mutex_);  // by bytes of addresses
};

// The pool whose block it is; null for memory of cuMemAlloc.
inline StreamPool* OwnerOf(const pager::Block& block) { return static_cast<StreamPool*>(block.owner); }

}  // namespace tessera::shim
