// Memory of pools is charged as far as pools have reserved it.
#include "shim/memory/pool_charges.h"

#include <atomic>
#include <utility>
#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuMemAllocAsync(tessera::cuda::CUdeviceptr*, size_t, tessera::cuda::CUstream);
TESSERA_HOOK cuMemFreeAsync(tessera::cuda::CUdeviceptr, tessera::cuda::CUstream);
TESSERA_HOOK cuMemPoolTrimTo(tessera::cuda::CUmemoryPool, size_t);
TESSERA_HOOK cuMemAllocFromPoolAsync(tessera::cuda::CUdeviceptr*, size_t, tessera::cuda::CUmemoryPool,
                                     tessera::cuda::CUstream);
TESSERA_HOOK cuMemPoolDestroy(tessera::cuda::CUmemoryPool);
TESSERA_HOOK cuCtxSynchronize();
TESSERA_HOOK cuStreamBeginCapture_v2(tessera::cuda::CUstream, tessera::cuda::CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(tessera::cuda::CUstream, tessera::cuda::CUgraph*);

namespace tessera::shim {
namespace {

using namespace cuda;

std::uint64_t reserved = 0;  // by the device's pool

CUresult GetPool(CUmemoryPool* pool, CUdevice) { return *pool = reinterpret_cast<CUmemoryPool>(0x50), CUDA_SUCCESS; }
CUresult GetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool) % 2, 0u) << "it is no handle";
  EXPECT_EQ(attribute, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  *static_cast<std::uint64_t*>(value) = reserved;
  return CUDA_SUCCESS;
}
CUresult Trim(CUmemoryPool, std::size_t) { return reserved = 0, CUDA_SUCCESS; }

class PoolChargesTest : public ShimFixture {
 protected:
  PoolChargesTest() {
    Daemon().Set([](FakeDaemon::Answers& answers) {
      answers.reserve = [](std::uint64_t) { return wire::Reserved{}; };
      answers.page = [](wire::Page& page) {
        page.memory_max = 8 * kGiB;
        page.memory_credit = page.memory_credit_keep = kCredit;
      };
    });
    PutFor(k_cuDeviceGetMemPool, &GetPool);
    PutFor(k_cuMemPoolGetAttribute, &GetAttribute);
    PutFor(k_cuMemPoolTrimTo, &Trim);
    Attached();
    MakeContext();
    reserved = 0;
    ReviewPools();
  }
  ~PoolChargesTest() override {
    reserved = 0;
    ReviewPools();
    for (const auto& [symbol, function] : before_) tessera_real_table[symbol] = function;
  }
  // Until the end of the test.
  template <typename Function>
  void PutFor(unsigned symbol, Function* function) {
    before_.emplace_back(symbol, tessera_real_table[symbol]);
    Cuda().Put(symbol, function);
  }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }
  static CUresult Allocate(std::uint64_t bytes, CUdeviceptr* address) {
    return cuMemAllocAsync(address, bytes, nullptr);
  }

  static constexpr std::int64_t kCredit = 20 * kGiB;

 private:
  std::vector<std::pair<unsigned, void*>> before_;
};

TEST_F(PoolChargesTest, WhatThePoolKeepsIsChargedOnce) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Allocate(12 * kGiB, &address), CUDA_SUCCESS);
  reserved = 12 * kGiB;
  EXPECT_EQ(Charged(), 12 * kGiB);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 12 * kGiB) << "a measurement finds it in the process";
  ASSERT_EQ(Allocate(12 * kGiB, &address), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 12 * kGiB);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
}

TEST_F(PoolChargesTest, WhatThePoolGivesBackIsGivenBack) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Allocate(kGiB, &address), CUDA_SUCCESS);
  reserved = kGiB;
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kGiB);
  reserved = kMiB;  // as the driver does when work has ended
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_EQ(cuMemPoolTrimTo(nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PoolChargesTest, APoolThatGrowsByMoreIsChargedForMore) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Allocate(kMiB, &address), CUDA_SUCCESS);
  reserved = 32 * kMiB;
  ReviewPools();
  EXPECT_EQ(Charged(), 32 * kMiB);
  CUdeviceptr next = 0;
  ASSERT_EQ(Allocate(kMiB, &next), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 32 * kMiB);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(next, nullptr), CUDA_SUCCESS);
}

TEST_F(PoolChargesTest, ARefusalComesAfterASecondLook) {
  CUdeviceptr address = 0, other = 0;
  ASSERT_EQ(Allocate(12 * kGiB, &address), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(12 * kGiB, &other), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Charged(), 12 * kGiB);
  reserved = 12 * kGiB;
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  reserved = 0;
  ASSERT_EQ(Allocate(20 * kGiB, &address), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 20 * kGiB);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
}

// The driver answers no question about a pool while the thread captures, and ends the capture instead.
TEST_F(PoolChargesTest, ACaptureIsAskedNothingAndChargedNothing) {
  PutFor(
      k_cuMemPoolGetAttribute, +[](CUmemoryPool, CUmemPool_attribute, void*) -> CUresult {
        ADD_FAILURE() << "the capture ends";
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      });
  const CUstream stream = Cuda().MakeStream();
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAllocAsync(&address, kGiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PoolChargesTest, TheDriverIsNotAskedAboutAPoolThatWasDestroyed) {
  static bool destroyed = false;
  PutFor(k_cuMemPoolDestroy, +[](CUmemoryPool) -> CUresult { return destroyed = true, CUDA_SUCCESS; });
  PutFor(
      k_cuMemPoolGetAttribute, +[](CUmemoryPool, CUmemPool_attribute, void* value) -> CUresult {
        EXPECT_FALSE(destroyed);
        return *static_cast<std::uint64_t*>(value) = 3 * kGiB, CUDA_SUCCESS;
      });
  const auto pool = reinterpret_cast<CUmemoryPool>(0x60);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocFromPoolAsync(&address, kGiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 3 * kGiB);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), kGiB) << "the allocation lives on";
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PoolChargesTest, NorAboutOneOfWhichNothingIsCharged) {
  PutFor(k_cuMemPoolDestroy, +[](CUmemoryPool) { return CUDA_SUCCESS; });
  EXPECT_EQ(cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(0x70)), CUDA_SUCCESS);
}

TEST_F(PoolChargesTest, WhatMemoryMaxDoesNotAllowIsAskedForOnce) {
  std::atomic<int> asked = 0;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.reserve = [&](std::uint64_t) { return ++asked, wire::Reserved{}; };
  });
  CUdeviceptr address = 0;
  ASSERT_EQ(Allocate(20 * kGiB, &address), CUDA_SUCCESS);
  reserved = 20 * kGiB + 12 * kMiB;
  for (int i = 0; i < 10; ++i) ReviewPools();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(Charged(), 20 * kGiB);
  reserved = 20 * kGiB;
  EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
