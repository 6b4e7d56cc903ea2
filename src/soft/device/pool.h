#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/cuda_abi.h"
#include "soft/device/heap.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

// A memory pool: what is freed stays reserved up to a threshold, for the next who takes it. Thread-safe.
class Pool {
 public:
  explicit Pool(Device& device, std::uint64_t max_bytes = 0);

  Device& device() { return device_; }
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUdeviceptr* address);
  // The work that used `address` has ended.
  cuda::CUresult Free(cuda::CUdeviceptr address);
  void Trim(std::uint64_t keep) { heap_.Trim(keep); }
  bool empty() const { return heap_.used() == 0; }

  // `value` points to a std::uint64_t, or an int for the reuse policies, as in cuMemPoolGetAttribute.
  cuda::CUresult Get(cuda::CUmemPool_attribute attribute, void* value);
  cuda::CUresult Set(cuda::CUmemPool_attribute attribute, const void* value);

  cuda::CUmemoryPool handle() { return reinterpret_cast<cuda::CUmemoryPool>(this); }
  // The devices' default pools included. Null if `handle` is no pool.
  static Pool* FromHandle(cuda::CUmemoryPool handle);
  // The handle becomes invalid; what was allocated stays valid, and the last free takes the pool with it.
  static void Destroy(cuda::CUmemoryPool handle);

 private:
  Device& device_;
  const std::uint64_t max_bytes_;  // 0: as many as the device has
  Heap heap_;
  std::atomic<std::uint64_t> release_threshold_ = 0;
  std::atomic<std::uint64_t> used_high_ = 0;
  std::atomic<std::uint64_t> reserved_high_ = 0;
  std::atomic<int> reuse_[3] = {1, 1, 1};  // accepted and reported; memory is reused in the order of the frees
};

// Gives back what cuMemAllocAsync, cuMemAllocFromPoolAsync or a graph's allocation node took from whichever pool.
cuda::CUresult FreeToPool(cuda::CUdeviceptr address);

}  // namespace tessera::soft
