#include <numeric>
#include <vector>

#include "soft/shared/steering.h"
#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

class CopyTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(d.cuMemAlloc_v2(&memory, kBytes));
    ASSERT_OK(d.cuMemsetD8_v2(memory, 0, kBytes));
    std::iota(host.begin(), host.end(), 0);
  }

  std::vector<unsigned char> Read(CUdeviceptr address, std::size_t bytes) const {
    std::vector<unsigned char> data(bytes);
    EXPECT_OK(d.cuMemcpyDtoH_v2(data.data(), address, bytes));
    return data;
  }

  static constexpr std::size_t kBytes = 1024;
  CUdeviceptr memory = 0;
  std::vector<unsigned char> host = std::vector<unsigned char>(kBytes);
};

using Bytes = std::vector<unsigned char>;

TEST_F(CopyTest, LinearInAllDirections) {
  EXPECT_OK(d.cuMemcpyHtoD_v2(memory, host.data(), 100));
  EXPECT_OK(d.cuMemcpyDtoD_v2(memory + 200, memory + 10, 5));
  EXPECT_EQ(Read(memory + 200, 6), (Bytes{10, 11, 12, 13, 14, 0}));
  Bytes back(4);
  EXPECT_OK(d.cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), memory + 1, 4));
  EXPECT_EQ(back, (Bytes{1, 2, 3, 4}));
  EXPECT_OK(d.cuMemcpyHtoD_v2_ptds(memory, &back[3], 1));
  EXPECT_EQ(Read(memory, 1), (Bytes{4}));
}

TEST_F(CopyTest, ChecksAddressesAndEnds) {
  EXPECT_OK(d.cuMemcpyHtoD_v2(memory, host.data(), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpyHtoD_v2(memory, nullptr, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpyHtoD_v2(0, host.data(), 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpyDtoH_v2(nullptr, memory, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD8_v2(memory, 1, kBytes * 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD8_v2(0, 1, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(host.data()), 1, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD32_v2(memory + 2, 1, 4));
}

TEST_F(CopyTest, Memsets) {
  EXPECT_OK(d.cuMemsetD16_v2(memory, 0x0201, 2));
  EXPECT_EQ(Read(memory, 5), (Bytes{1, 2, 1, 2, 0}));
  EXPECT_OK(d.cuMemsetD32_v2(memory, 0x04030201, 1));
  EXPECT_EQ(Read(memory, 5), (Bytes{1, 2, 3, 4, 0}));
  EXPECT_OK(d.cuMemsetD2D8_v2(memory, 4, 9, 2, 3));
  EXPECT_EQ(Read(memory, 12), (Bytes{9, 9, 3, 4, 9, 9, 0, 0, 9, 9, 0, 0}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemsetD2D8_v2(memory, 4, 1, 8, 2));
}

TEST_F(CopyTest, Planes) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 16;
  copy.srcXInBytes = 2;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = 4;
  copy.WidthInBytes = 3;
  copy.Height = 2;
  EXPECT_OK(d.cuMemcpy2D_v2(&copy));
  EXPECT_EQ(Read(memory, 8), (Bytes{18, 19, 20, 0, 34, 35, 36, 0}));
  copy.srcPitch = 2;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpy2D_v2(&copy));
  copy.srcPitch = 16;
  copy.srcMemoryType = static_cast<CUmemorytype>(9);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpy2D_v2(&copy));
  copy.WidthInBytes = 0;
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  EXPECT_OK(d.cuMemcpy2D_v2(&copy));
}

TEST_F(CopyTest, Volumes) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 4;
  copy.srcHeight = 3;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = 2;
  copy.dstHeight = 2;
  copy.WidthInBytes = 2;
  copy.Height = 2;
  copy.Depth = 2;
  EXPECT_OK(d.cuMemcpy3D_v2(&copy));
  EXPECT_EQ(Read(memory, 8), (Bytes{0, 1, 4, 5, 12, 13, 16, 17}));
}

TEST_F(CopyTest, Arrays) {
  const CUDA_ARRAY_DESCRIPTOR shape = {16, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr;
  ASSERT_OK(d.cuArrayCreate_v2(&array, &shape));
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = host.data();
  in.srcPitch = 16;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.WidthInBytes = 16;
  in.Height = 2;
  EXPECT_OK(d.cuMemcpy2D_v2(&in));
  CUDA_MEMCPY2D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = 3;
  out.srcY = 1;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = memory;
  out.WidthInBytes = 2;
  out.Height = 1;
  EXPECT_OK(d.cuMemcpy2D_v2(&out));
  EXPECT_EQ(Read(memory, 2), (Bytes{19, 20}));
  out.srcXInBytes = 15;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemcpy2D_v2(&out));
  EXPECT_OK(d.cuArrayDestroy(array));

  const CUDA_ARRAY_DESCRIPTOR line = {16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  ASSERT_OK(d.cuArrayCreate_v2(&array, &line));
  EXPECT_OK(d.cuMemcpyHtoA_v2(array, 4, host.data() + 7, 2));
  Bytes back(2);
  EXPECT_OK(d.cuMemcpyAtoH_v2(back.data(), array, 4, 2));
  EXPECT_EQ(back, (Bytes{7, 8}));
  EXPECT_OK(d.cuArrayDestroy(array));
}

// The program may change pageable memory as soon as the call has returned.
TEST_F(CopyTest, SmallPageableSourcesAreReadAtOnce) {
  const CUstream stream = NewStream();
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuMemcpyHtoDAsync_v2(memory, host.data() + 5, 4, stream));
  std::fill(host.begin(), host.end(), 0xff);
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_EQ(Read(memory, 4), (Bytes{5, 6, 7, 8}));
}

TEST_F(CopyTest, PageableDestinationsAreThereOnReturn) {
  const CUstream stream = NewStream();
  EXPECT_OK(d.cuMemsetD32Async(memory, 0x01010101, 1, stream));
  Bytes back(4);
  EXPECT_OK(d.cuMemcpyDtoHAsync_v2(back.data(), memory, 4, stream));
  EXPECT_EQ(back, (Bytes{1, 1, 1, 1}));
}

TEST_F(CopyTest, PinnedCopiesReturnAtOnce) {
  void* pinned = nullptr;
  ASSERT_OK(d.cuMemHostAlloc(&pinned, 4, 0));
  const CUstream stream = NewStream();
  {
    Gate gate;
    gate.Hold(stream);
    EXPECT_OK(d.cuMemcpyDtoHAsync_v2(pinned, memory, 4, stream));
    EXPECT_OK(d.cuMemcpyHtoDAsync_v2(memory, pinned, 4, stream));
    EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(stream));
  }
  EXPECT_OK(d.cuStreamQuery(stream));
  EXPECT_OK(d.cuMemFreeHost(pinned));
}

// Many rows and several chunks, so that all of the strided path is run.
TEST_F(CopyTest, LargeCopiesArriveWhole) {
  constexpr std::size_t kWidth = 3000, kPitch = 4096, kHeight = 1000;
  CUdeviceptr large = 0;
  ASSERT_OK(d.cuMemAlloc_v2(&large, kPitch * kHeight));
  std::vector<unsigned char> out(kWidth * kHeight), back(kWidth * kHeight);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 7 + i / 251);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = out.data();
  copy.srcPitch = kWidth;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = large;
  copy.dstPitch = kPitch;
  copy.WidthInBytes = kWidth;
  copy.Height = kHeight;
  EXPECT_OK(d.cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D reverse = {};
  reverse.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  reverse.srcDevice = large;
  reverse.srcPitch = kPitch;
  reverse.dstMemoryType = CU_MEMORYTYPE_HOST;
  reverse.dstHost = back.data();
  reverse.dstPitch = kWidth;
  reverse.WidthInBytes = kWidth;
  reverse.Height = kHeight;
  EXPECT_OK(d.cuMemcpy2D_v2(&reverse));
  EXPECT_EQ(out, back);
}

// Frozen with its copies a process does nothing any more; frozen otherwise, only kernels stand still.
TEST_F(CopyTest, WaitsWhileTheProcessIsFrozenWithItsCopies) {
  if (std::getenv("TESSERA_TEST_LIBCUDA")) GTEST_SKIP() << "a soft GPU is frozen by its own means";
  const auto state = SharedState::Attach(SharedState::DefaultPath(), "");
  ASSERT_TRUE(state);
  std::uint32_t* word = nullptr;
  ASSERT_OK(d.cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, CU_MEMHOSTALLOC_DEVICEMAP));
  *word = 0;
  ASSERT_TRUE(SetFrozen(**state, 0, getpid(), Frozen::kKernels));
  EXPECT_OK(d.cuMemcpyHtoD_v2(memory, host.data(), kBytes));
  ASSERT_TRUE(SetFrozen(**state, 0, getpid(), Frozen::kAll));
  EXPECT_OK(d.cuMemcpyHtoDAsync_v2(memory, host.data(), kBytes, nullptr));
  EXPECT_OK(d.cuStreamWriteValue32_v2(nullptr, reinterpret_cast<CUdeviceptr>(word), 1, 0));
  CUstream other = nullptr;
  EXPECT_OK(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(d.cuStreamWriteValue32_v2(other, reinterpret_cast<CUdeviceptr>(word), 2, 0));
  // A host function on a stream of its own is not the GPU's work: when it has run, the rest had its chance.
  CUstream third = nullptr;
  EXPECT_OK(d.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
  const CUhostFn nothing = [](void*) {};
  EXPECT_OK(d.cuLaunchHostFunc(third, nothing, nullptr));
  EXPECT_OK(d.cuStreamSynchronize(third));
  EXPECT_OK(d.cuStreamDestroy_v2(third));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(d.cuStreamQuery(other), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(*static_cast<volatile std::uint32_t*>(word), 0u);
  EXPECT_TRUE(SetFrozen(**state, 0, getpid(), Frozen::kNothing));
  EXPECT_OK(d.cuCtxSynchronize());
  EXPECT_NE(*word, 0u);
  EXPECT_OK(d.cuStreamDestroy_v2(other));
  EXPECT_OK(d.cuMemFreeHost(word));
}

}  // namespace
}  // namespace tessera::soft
