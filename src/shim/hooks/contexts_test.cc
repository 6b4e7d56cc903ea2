// Primary contexts of two GPUs that wait for room.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
TESSERA_HOOK cuDevicePrimaryCtxRelease_v2(CUdevice);
TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);

namespace tessera::shim {
namespace {

class OtherGpu : public ShimFixture {
 public:
  OtherGpu() { Attached(); }
  void TestBody() override {}
  using ShimFixture::device;
  using ShimFixture::gpu;
};

class ContextsTest : public ShimFixture {
 protected:
  ContextsTest() {
    Swap();
    Attached();
  }
  static CUresult Retain(CUdevice device) {
    CUcontext context = nullptr;
    return cuDevicePrimaryCtxRetain(&context, device);
  }
};

TEST_F(ContextsTest, OneThatWaitsForRoomHoldsUpNoneOnAnotherGpu) {
  OtherGpu other;
  std::atomic<bool> room{false};
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.context = [&](std::uint32_t asked) {
      const bool there = asked == other.gpu || room;
      return wire::Reserved{.bytes = there ? kMiB : 0, .wait = !there};
    };
  });
  std::thread waits([&] { EXPECT_EQ(Retain(device), CUDA_SUCCESS); });
  Daemon().Await<wire::Context>(gpu);
  EXPECT_EQ(Retain(other.device), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(other.device), CUDA_SUCCESS);
  room = true;
  Daemon().Order(gpu, wire::GateOrder::kOpen);  // rings
  waits.join();
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

TEST_F(ContextsTest, TheSameOneIsMadeOnce) {
  std::thread threads[4];
  for (std::thread& thread : threads) thread = std::thread([&] { EXPECT_EQ(Retain(device), CUDA_SUCCESS); });
  for (std::thread& thread : threads) thread.join();
  for (int use = 0; use < 4; ++use) EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  Settle();
  std::vector<std::int32_t> told;
  for (const wire::Context& each : Daemon().All<wire::Context>(gpu)) told.push_back(each.delta);
  EXPECT_EQ(told, (std::vector<std::int32_t>{1, -1}));
}

// Libraries retain and release it again and again.
TEST_F(ContextsTest, EventsBehindFreesStayUntilTheLastRelease) {
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  FakeCuda::SetCurrent(primary);
  const std::size_t before = Cuda().Events();
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocAsync(&address, kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  Attached().Pager()->Ordered().Mark();
  EXPECT_EQ(Cuda().Events(), before + 1);
  EXPECT_EQ(Retain(device), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), before + 1);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), before);
}

}  // namespace
}  // namespace tessera::shim
