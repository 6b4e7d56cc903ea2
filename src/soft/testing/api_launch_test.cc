#include <vector>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

class LaunchTest : public DriverTest {
 protected:
  struct Shape {
    unsigned grid[3] = {1, 1, 1};
    unsigned block[3] = {1, 1, 1};
    unsigned shared = 0;
  };
  CUresult LaunchShape(const char* kernel, const Shape& s) const {
    return d.cuLaunchKernel(Kernel(kernel), s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
                            s.shared, nullptr, nullptr, nullptr);
  }
};

TEST_F(LaunchTest, RunsEveryThread) {
  CUdeviceptr words = NewWords(1000);
  std::uint32_t value = 3;
  void* parameters[] = {&words, &value};
  EXPECT_OK(Launch(Kernel("add"), nullptr, parameters, 10, 100));
  std::vector<std::uint32_t> host(1000);
  EXPECT_OK(d.cuMemcpyDtoH_v2(host.data(), words, 4000));
  EXPECT_EQ(host, std::vector<std::uint32_t>(1000, 3));
}

TEST_F(LaunchTest, ChecksShapes) {
  EXPECT_OK(LaunchShape("empty", {}));
  EXPECT_OK(LaunchShape("empty", {.block = {1024, 1, 1}}));
  EXPECT_OK(LaunchShape("empty", {.shared = 48 << 10}));
  for (const Shape& bad : {Shape{.grid = {0, 1, 1}}, Shape{.grid = {1, 65536, 1}}, Shape{.grid = {1, 1, 65536}},
                           Shape{.grid = {0x80000000u, 1, 1}}, Shape{.block = {0, 1, 1}}, Shape{.block = {1025, 1, 1}},
                           Shape{.block = {1024, 2, 1}}, Shape{.block = {1, 1, 65}}, Shape{.shared = (48 << 10) + 1}}) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchShape("empty", bad));
  }
  EXPECT_OK(LaunchShape("limited", {.block = {8, 8, 1}}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchShape("limited", {.block = {65, 1, 1}}));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchShape("limited", {.shared = 48 << 10}));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, Launch(nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchShape("add", {}));  // without parameters
}

TEST_F(LaunchTest, MoreSharedMemoryMustBeAskedFor) {
  const CUfunction empty = Kernel("empty");
  ASSERT_OK(d.cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_OK(LaunchShape("empty", {.shared = 100 << 10}));
}

TEST_F(LaunchTest, TakesParametersInABuffer) {
  const CUdeviceptr words = NewWords(2);
  struct {
    CUdeviceptr out;
    std::uint64_t a, b, c;
  } bytes = {words, 1, 0x200000003, 4};
  std::size_t size = sizeof bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  const auto launch = [&](void** parameters) {
    return d.cuLaunchKernel(Kernel("by_value"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra);
  };
  EXPECT_OK(launch(nullptr));
  EXPECT_EQ(Word(words), 3u);
  EXPECT_EQ(Word(words + 4), 2u);
  void* both[] = {&bytes.out, &bytes.a};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(both));
  size = sizeof bytes + 24;
  EXPECT_CU(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch(nullptr));
  void* unknown[] = {reinterpret_cast<void*>(7), &bytes, CU_LAUNCH_PARAM_END};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            d.cuLaunchKernel(Kernel("by_value"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, unknown));
}

TEST_F(LaunchTest, TakesParametersByValueWhenLaunched) {
  CUdeviceptr words = NewWords(2);
  std::uint64_t structure[3] = {1, 2, 3};
  void* parameters[] = {&words, structure};
  const CUstream stream = NewStream();
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(Launch(Kernel("by_value"), stream, parameters));
  structure[1] = 99;
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_EQ(Word(words), 2u);
}

TEST_F(LaunchTest, TheExtendedForm) {
  CUdeviceptr words = NewWords(1);
  std::uint32_t value = 3;
  void* parameters[] = {&words, &value};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  EXPECT_OK(d.cuLaunchKernelEx(&config, Kernel("add"), parameters, nullptr));
  EXPECT_EQ(Word(words), 3u);
  config.gridDimX = 1'000'000;
  EXPECT_CU(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, d.cuLaunchKernelEx(&config, Kernel("empty"), nullptr, nullptr));
}

TEST_F(LaunchTest, CooperativeGridsMustFit) {
  int multiprocessors = 0;
  ASSERT_OK(d.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  const auto launch = [&](unsigned blocks) {
    return d.cuLaunchCooperativeKernel(Kernel("empty"), blocks, 1, 1, 1024, 1, 1, 0, nullptr, nullptr);
  };
  const auto fits = static_cast<unsigned>(multiprocessors) * 2;  // of 2048 threads each
  EXPECT_OK(launch(fits));
  EXPECT_CU(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, launch(fits + 1));
}

TEST_F(LaunchTest, CopiesOverlapKernels) {
  void* memory = nullptr;
  ASSERT_OK(d.cuMemHostAlloc(&memory, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  auto& flag = *new (memory) std::atomic<std::uint32_t>(0);
  CUdeviceptr address = reinterpret_cast<CUdeviceptr>(memory);
  void* parameters[] = {&address};
  const CUdeviceptr words = NewWords(1);
  ASSERT_OK(d.cuCtxSynchronize());
  const CUstream compute = NewStream(), copy = NewStream();
  EXPECT_OK(Launch(Kernel("wait_for"), compute, parameters));
  const std::uint32_t word = 5;
  EXPECT_OK(d.cuMemcpyHtoDAsync_v2(words, &word, 4, copy));
  EXPECT_OK(d.cuStreamSynchronize(copy));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(compute));
  flag = 1;
  EXPECT_OK(d.cuStreamSynchronize(compute));
  EXPECT_OK(d.cuMemFreeHost(memory));
}

TEST_F(LaunchTest, Occupancy) {
  int blocks = 0, grid = 0, size = 0, multiprocessors = 0;
  const CUfunction empty = Kernel("empty");
  ASSERT_OK(d.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  struct Case {
    int block_size;
    std::size_t shared;
    int blocks;
  };
  for (const Case& c : {Case{32, 0, 32}, Case{1024, 0, 2}, Case{100, 10 << 10, 16}, Case{2048, 0, 0},
                        Case{128, 48 << 10, 4}, Case{128, 1 << 20, 0}}) {
    EXPECT_OK(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, c.block_size, c.shared));
    EXPECT_EQ(blocks, c.blocks) << c.block_size << " threads, " << c.shared << " bytes";
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, 0, 0));

  EXPECT_OK(d.cuOccupancyMaxPotentialBlockSize(&grid, &size, empty, nullptr, 0, 0));
  EXPECT_EQ(size, 1024);
  EXPECT_EQ(grid, 2 * multiprocessors);
  EXPECT_OK(d.cuOccupancyMaxPotentialBlockSize(&grid, &size, empty, nullptr, 0, 100));
  EXPECT_EQ(size, 64);
  EXPECT_EQ(grid, 32 * multiprocessors);
  EXPECT_OK(d.cuOccupancyMaxPotentialBlockSize(&grid, &size, Kernel("limited"), nullptr, 0, 0));
  EXPECT_EQ(size, 64);

  std::size_t bytes = 0;
  EXPECT_OK(d.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, empty, 32, 32));
  EXPECT_EQ(bytes, (228u << 10) / 32);
  EXPECT_OK(d.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, empty, 1, 128));
  EXPECT_EQ(bytes, 48u << 10);
}

}  // namespace
}  // namespace tessera::soft
