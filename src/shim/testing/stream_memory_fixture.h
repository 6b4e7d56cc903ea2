// For tests of memory in the order of streams (cuMemAllocAsync) and its pools through the hooks.
#pragma once

#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuMemAllocAsync(tessera::cuda::CUdeviceptr*, size_t, tessera::cuda::CUstream);
TESSERA_HOOK cuMemAllocFromPoolAsync(tessera::cuda::CUdeviceptr*, size_t, tessera::cuda::CUmemoryPool,
                                     tessera::cuda::CUstream);
TESSERA_HOOK cuMemFreeAsync(tessera::cuda::CUdeviceptr, tessera::cuda::CUstream);
TESSERA_HOOK cuMemPoolGetAttribute(tessera::cuda::CUmemoryPool, tessera::cuda::CUmemPool_attribute, void*);
TESSERA_HOOK cuMemPoolSetAttribute(tessera::cuda::CUmemoryPool, tessera::cuda::CUmemPool_attribute, void*);

namespace tessera::shim {

// Memory in the order of streams on a device whose memory is swapped, as a program allocates and frees it.
class StreamMemoryFixture : public ShimFixture {
 protected:
  StreamMemoryFixture() { Swap(); }

  cuda::CUcontext Begin() {
    EXPECT_NE(Attached().Pager(), nullptr);
    Page().memory_credit = kCredit;
    Page().memory_credit_keep = kCredit;
    return MakeContext();
  }
  static cuda::CUdeviceptr Allocate(std::uint64_t bytes, cuda::CUstream stream = nullptr) {
    cuda::CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAllocAsync(&address, bytes, stream), cuda::CUDA_SUCCESS);
    return address;
  }
  static cuda::CUdeviceptr AllocateFrom(cuda::CUmemoryPool pool, std::uint64_t bytes) {
    cuda::CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAllocFromPoolAsync(&address, bytes, pool, nullptr), cuda::CUDA_SUCCESS);
    return address;
  }
  static void Free(cuda::CUdeviceptr address, cuda::CUstream stream = nullptr) {
    EXPECT_EQ(cuMemFreeAsync(address, stream), cuda::CUDA_SUCCESS);
  }
  // A submission that goes on until Cuda().End.
  static void Submit() {
    EXPECT_EQ(REAL_AS(cuMemcpyHtoD_v2, cuda::CUdeviceptr, const void*, size_t)(1, "", 1), cuda::CUDA_SUCCESS);
  }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }
  cuda::CUmemoryPool DefaultPool() const {
    cuda::CUmemoryPool pool = nullptr;
    EXPECT_EQ(REAL_AS(cuDeviceGetDefaultMemPool, cuda::CUmemoryPool*, cuda::CUdevice)(&pool, device),
              cuda::CUDA_SUCCESS);
    return pool;
  }
  static std::uint64_t Attribute(cuda::CUmemoryPool pool, cuda::CUmemPool_attribute attribute) {
    std::uint64_t value = ~0ull;
    EXPECT_EQ(cuMemPoolGetAttribute(pool, attribute, &value), cuda::CUDA_SUCCESS);
    return value;
  }
  static void SetThreshold(cuda::CUmemoryPool pool, std::uint64_t bytes) {
    EXPECT_EQ(cuMemPoolSetAttribute(pool, cuda::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), cuda::CUDA_SUCCESS);
  }
  // There is no more room on the GPU from now on.
  void NoRoom() {
    Page().room_credit = 0;
    Daemon().Set(
        [](FakeDaemon::Answers& answers) { answers.room = [](std::uint64_t) { return wire::RoomGranted{}; }; });
  }
  bool InHeap(cuda::CUdeviceptr address) { return Paging::Of(address) == Attached().Pager(); }

  static constexpr std::int64_t kCredit = std::int64_t{1} << 34;
};

}  // namespace tessera::shim
