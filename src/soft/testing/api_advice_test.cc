#include <gtest/gtest.h>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

// All calls for managed memory, about one range.
class AdviceTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(d.cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  }
  void TearDown() override {
    EXPECT_OK(d.cuMemFree_v2(managed));
    DriverTest::TearDown();
  }

  void ExpectAll(CUresult expected, CUdeviceptr address, std::size_t bytes) {
    const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    EXPECT_CU(expected, d.cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    EXPECT_CU(expected, d.cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, -1));
    EXPECT_CU(expected, d.cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    EXPECT_CU(expected, d.cuMemPrefetchAsync(address, bytes, 0, nullptr));
    EXPECT_CU(expected, d.cuMemPrefetchAsync_v2(address, bytes, host, 0, nullptr));
    CUdeviceptr addresses[] = {managed, address};
    std::size_t sizes[] = {kBytes, bytes}, starts[] = {0, 1};
    CUmemLocation locations[] = {device, host};
    EXPECT_CU(expected, d.cuMemPrefetchBatchAsync(addresses, sizes, 2, locations, starts, 2, 0, nullptr));
    EXPECT_CU(expected, d.cuMemDiscardBatchAsync(addresses, sizes, 2, 0, nullptr));
    EXPECT_CU(expected, d.cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, 2, locations, starts, 2, 0, nullptr));
    int value = 7, accessed[2] = {7, 7};
    EXPECT_CU(expected,
              d.cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, bytes));
    EXPECT_EQ(value, expected == CUDA_SUCCESS ? 0 : 7);
    void* data[] = {&value, accessed};
    std::size_t data_bytes[] = {sizeof value, sizeof accessed};
    CUmem_range_attribute names[] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
    EXPECT_CU(expected, d.cuMemRangeGetAttributes(data, data_bytes, names, 2, address, bytes));
    EXPECT_EQ(accessed[1], expected == CUDA_SUCCESS ? -2 : 7);
  }

  static constexpr std::size_t kBytes = 1 << 20;
  CUdeviceptr managed = 0;
};

TEST_F(AdviceTest, OfManagedMemory) {
  ExpectAll(CUDA_SUCCESS, managed, kBytes);
  ExpectAll(CUDA_SUCCESS, managed + 4096, kBytes - 4096);
  ExpectAll(CUDA_ERROR_INVALID_VALUE, managed + 4096, kBytes);
  ExpectAll(CUDA_ERROR_INVALID_VALUE, managed, 0);
}

TEST_F(AdviceTest, OtherMemoryTakesNone) {
  CUdeviceptr memory = 0, pooled = 0;
  ASSERT_OK(d.cuMemAlloc_v2(&memory, kBytes));
  ASSERT_OK(d.cuMemAllocAsync(&pooled, kBytes, nullptr));
  ExpectAll(CUDA_ERROR_INVALID_VALUE, memory, kBytes);
  ExpectAll(CUDA_ERROR_INVALID_VALUE, pooled, kBytes);
  EXPECT_OK(d.cuMemFreeAsync(pooled, nullptr));
  EXPECT_OK(d.cuMemFree_v2(memory));
}

TEST_F(AdviceTest, PlacesThatDoNotExist) {
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, d.cuMemPrefetchAsync(managed, kBytes, 77, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            d.cuMemPrefetchAsync_v2(managed, kBytes, {CU_MEM_LOCATION_TYPE_INVALID, 0}, 0, nullptr));
}

}  // namespace
}  // namespace tessera::soft
