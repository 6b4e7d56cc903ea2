#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "cuda/cuda_abi.h"
#include "soft/device/address_map.h"

namespace tessera::soft {

class Context;
class Device;

// Device memory in blocks of 2 MiB granules; small allocations share a block, as on a real GPU. Thread-safe.
// Its allocations are in the AddressMap.
class Heap {
 public:
  static constexpr std::uint64_t kGranule = 2 << 20;
  static constexpr std::uint64_t kAlignment = 512;  // of every allocation

  // A `pool` keeps empty blocks until Trim; else they go back to the device at once.
  Heap(Device& device, Context* context, cuda::CUmemoryPool pool = nullptr);
  ~Heap();  // frees all

  // CUDA_ERROR_OUT_OF_MEMORY when the device is full, CUDA_ERROR_INVALID_VALUE for 0 bytes.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUdeviceptr* address);
  // CUDA_ERROR_INVALID_VALUE if `address` is not the start of an allocation of this heap. The caller made sure that no
  // work uses it.
  cuda::CUresult Free(cuda::CUdeviceptr address);
  // Gives empty blocks back until at most `keep` bytes are reserved.
  void Trim(std::uint64_t keep);

  std::uint64_t used() const;
  std::uint64_t reserved() const;

  // The block that `address` lies in, made shareable with other processes: a file descriptor that stays the heap's.
  struct SharedBlock {
    int fd;
    std::uint64_t address;
    std::uint64_t bytes;
  };
  cuda::CUresult Share(cuda::CUdeviceptr address, SharedBlock* block);
  bool HasShared() const;

 private:
  struct Block {
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;
    std::map<std::uint64_t, std::uint64_t> gaps;  // address -> bytes that are free
    int fd = -1;                                  // once shared
  };
  using Blocks = std::map<std::uint64_t, Block>;

  Blocks::iterator AddBlock(std::uint64_t bytes) TESSERA_REQUIRES(mutex_);  // end() if the device is full
  Blocks::iterator ReleaseBlock(Blocks::iterator block) TESSERA_REQUIRES(mutex_);
  Blocks::iterator BlockOf(std::uint64_t address) TESSERA_REQUIRES(mutex_);

  Device& device_;
  Context* const context_;
  const cuda::CUmemoryPool pool_;
  mutable Mutex mutex_;
  Blocks blocks_ TESSERA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> allocations_ TESSERA_GUARDED_BY(mutex_);  // address -> bytes taken
  std::uint64_t used_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_ TESSERA_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::soft
