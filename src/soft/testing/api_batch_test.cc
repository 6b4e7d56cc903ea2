#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

using Bytes = std::vector<unsigned char>;

class BatchTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(d.cuMemAlloc_v2(&memory, kBytes));
    ASSERT_OK(d.cuMemsetD8_v2(memory, 0, kBytes));
    std::iota(host.begin(), host.end(), 1);
  }
  void TearDown() override {
    EXPECT_OK(d.cuMemFree_v2(memory));
    DriverTest::TearDown();
  }

  Bytes Read(std::size_t offset, std::size_t bytes) const {
    Bytes data(bytes);
    EXPECT_OK(d.cuMemcpyDtoH_v2(data.data(), memory + offset, bytes));
    return data;
  }
  CUresult Copy(std::size_t count, std::size_t* failed = nullptr, CUstream stream = CU_STREAM_PER_THREAD) {
    std::size_t start = 0;
    return d.cuMemcpyBatchAsync(to, from, sizes, count, &attributes, &start, 1, failed, stream);
  }
  CUDA_MEMCPY3D_BATCH_OP Volume(CUdeviceptr destination, CUdeviceptr source) const {
    CUDA_MEMCPY3D_BATCH_OP copy{};
    copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.src.op.ptr = {.ptr = source};
    copy.dst.op.ptr = {.ptr = destination, .rowLength = 4};
    copy.extent = {2, 2, 1};
    copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return copy;
  }

  static constexpr std::size_t kBytes = 1024;
  CUdeviceptr memory = 0;
  Bytes host = Bytes(kBytes);
  CUdeviceptr to[2] = {}, from[2] = {};
  std::size_t sizes[2] = {2, 3};
  CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
};

TEST_F(BatchTest, CopiesBetweenPointers) {
  to[0] = memory;
  to[1] = memory + 10;
  from[0] = reinterpret_cast<CUdeviceptr>(host.data());
  from[1] = reinterpret_cast<CUdeviceptr>(host.data() + 100);
  EXPECT_OK(Copy(2));
  EXPECT_OK(d.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(Read(0, 3), (Bytes{1, 2, 0}));
  EXPECT_EQ(Read(10, 4), (Bytes{101, 102, 103, 0}));
}

TEST_F(BatchTest, ASourceThatEndsWithTheCallIsReadByThen) {
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  to[0] = memory + 20;
  {
    Bytes gone = {8, 9};
    from[0] = reinterpret_cast<CUdeviceptr>(gone.data());
    EXPECT_OK(Copy(1));
    gone = {0, 0};
  }
  EXPECT_EQ(Read(20, 2), (Bytes{8, 9}));
}

TEST_F(BatchTest, SaysWhichCopyIsWrong) {
  std::size_t failed = 7;
  to[0] = memory;
  from[0] = memory + 100;
  to[1] = 0;
  from[1] = memory;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Copy(2, &failed));
  EXPECT_EQ(failed, 1u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Copy(0, &failed));
  EXPECT_EQ(failed, SIZE_MAX);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Copy(1, &failed, nullptr)) << "the legacy stream";
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Copy(1, &failed));
}

TEST_F(BatchTest, Volumes) {
  EXPECT_OK(d.cuMemcpyHtoD_v2(memory + 100, host.data(), 4));
  CUDA_MEMCPY3D_BATCH_OP copies[] = {Volume(memory, memory + 100), Volume(memory + 50, memory + 100)};
  std::size_t failed = 7;
  EXPECT_OK(d.cuMemcpy3DBatchAsync(2, copies, &failed, 0, CU_STREAM_PER_THREAD));
  EXPECT_OK(d.cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(Read(0, 7), (Bytes{1, 2, 0, 0, 3, 4, 0}));
  EXPECT_EQ(Read(50, 7), (Bytes{1, 2, 0, 0, 3, 4, 0}));
  copies[1].extent.height = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpy3DBatchAsync(2, copies, &failed, 0, CU_STREAM_PER_THREAD));
  EXPECT_EQ(failed, 1u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpy3DBatchAsync_v2(2, copies, 0, CU_STREAM_PER_THREAD));
}

}  // namespace
}  // namespace tessera::soft
