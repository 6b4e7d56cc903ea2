#include "base/size.h"
#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using ApiPool = SoftApiTest;

std::uint64_t Attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  std::uint64_t value = 0;
  EXPECT_OK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

TEST_F(ApiPool, MemoryOfOtherAllocatorsIsFreedInStreamOrderToo) {
  const std::size_t free = FreeBytes();
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAlloc_v2(&address, 4 << 20));
  EXPECT_EQ(cuMemFreeAsync(address + 512, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFreeAsync(address, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiPool, GivesBackAtOnceByDefault) {
  const std::size_t free = FreeBytes();
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAllocAsync(&memory, 10 * kMiB, nullptr));
  EXPECT_EQ(FreeBytes(), free - 10 * kMiB);
  EXPECT_OK(cuMemFreeAsync(memory, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiPool, KeepsUpToTheThreshold) {
  const std::size_t free = FreeBytes();
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t threshold = UINT64_MAX;
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAllocAsync(&memory, 10 * kMiB, nullptr));
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 10 * kMiB);
  EXPECT_OK(cuMemFreeAsync(memory, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * kMiB);
  EXPECT_EQ(Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * kMiB);
  EXPECT_EQ(FreeBytes(), free - 10 * kMiB);
  CUdeviceptr again = 0;
  ASSERT_OK(cuMemAllocAsync(&again, 10 * kMiB, nullptr));
  EXPECT_EQ(again, memory);
  EXPECT_OK(cuMemFree_v2(again));  // allowed, and waits
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(FreeBytes(), free);
  threshold = 0;
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

TEST_F(ApiPool, OwnPoolAndItsLimit) {
  const std::size_t free = FreeBytes();
  const CUmemPoolProps properties = {
      .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = 8 * kMiB};
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  CUdeviceptr memory = 0;
  EXPECT_OK(cuMemAllocFromPoolAsync(&memory, 6 * kMiB, pool, nullptr));
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&more, 6 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemoryPool owner = nullptr;
  EXPECT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
  EXPECT_EQ(owner, pool);
  EXPECT_OK(cuDeviceSetMemPool(0, pool));
  EXPECT_OK(cuMemPoolDestroy(pool));
  CUmemoryPool current = nullptr;
  CUmemoryPool standard = nullptr;
  EXPECT_OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_OK(cuDeviceGetDefaultMemPool(&standard, 0));
  EXPECT_EQ(current, standard);
  // Memory that it gave stays valid.
  EXPECT_OK(cuMemsetD8_v2(memory, 1, 6 * kMiB));
  EXPECT_OK(cuMemFreeAsync(memory, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiPool, Refusals) {
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_NOT_PERMITTED);
  const CUmemPoolProps shared = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  EXPECT_EQ(cuMemPoolCreate(&pool, &shared), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemFreeAsync(0x1000, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAllocAsync(&memory, kTestMemory, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace tessera::soft
