// Primary contexts of two GPUs that wait for room, and green contexts.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/held_waits.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
TESSERA_HOOK cuDevicePrimaryCtxRelease_v2(CUdevice);
TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuGreenCtxCreate(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned);
TESSERA_HOOK cuGreenCtxDestroy(CUgreenCtx);

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

// A driver before 555: a thread of the shim's waits for the context's work.
TEST_F(ContextsTest, AReleaseThatIsNotTheLastWaitsForNoWork) {
  HeldWaits waits(Cuda());
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  EXPECT_EQ(Retain(device), CUDA_SUCCESS);
  Cuda().TakeNoMarkers(primary);
  Attached().Gates().GateOf(primary);
  EXPECT_EQ(waits.Await(1), primary);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  constexpr int kMany = 1000;
  waits.Let(kMany);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
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

// As the driver has them: a green context retains the primary one, and its handle is that of its CUcontext.
FakeCuda* driver = nullptr;
CUdevice green_device = -1;

CUresult MakeGreen(CUgreenCtx* green, CUdevResourceDesc, CUdevice device, unsigned) {
  CUcontext primary = nullptr;
  REAL_AS(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&primary, device);
  *green = reinterpret_cast<CUgreenCtx>(driver->MakeContext(device));
  green_device = device;
  return CUDA_SUCCESS;
}
CUresult FromGreen(CUcontext* context, CUgreenCtx green) {
  return *context = reinterpret_cast<CUcontext>(green), CUDA_SUCCESS;
}
CUresult EndGreen(CUgreenCtx green) {
  REAL_AS(cuCtxDestroy_v2, CUcontext)(reinterpret_cast<CUcontext>(green));
  return REAL_AS(cuDevicePrimaryCtxRelease_v2, CUdevice)(green_device);
}

class GreenContextsTest : public ContextsTest {
 protected:
  GreenContextsTest() {
    driver = &Cuda();
    Cuda().Put(k_cuGreenCtxCreate, &MakeGreen);
    Cuda().Put(k_cuCtxFromGreenCtx, &FromGreen);
    Cuda().Put(k_cuGreenCtxDestroy, &EndGreen);
    Page().memory_credit = kCredit;
    Page().memory_credit_keep = kCredit;
  }
  // Its context is current.
  CUgreenCtx Make() {
    CUgreenCtx green = nullptr;
    EXPECT_EQ(cuGreenCtxCreate(&green, nullptr, device, 1), CUDA_SUCCESS);
    FakeCuda::SetCurrent(reinterpret_cast<CUcontext>(green));
    return green;
  }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }

  static constexpr std::int64_t kCredit = std::int64_t{1} << 34;
};

TEST_F(GreenContextsTest, MakesAndEndsThePrimaryOne) {
  const CUgreenCtx green = Make();
  EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_SUCCESS);
  Settle();
  std::vector<std::int32_t> told;
  for (const wire::Context& each : Daemon().All<wire::Context>(gpu)) told.push_back(each.delta);
  EXPECT_EQ(told, (std::vector<std::int32_t>{1, -1}));
}

TEST_F(GreenContextsTest, ItsMemoryOutlivesItAndItsEventsDoNot) {
  CUcontext primary = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  const std::size_t events = Cuda().Events();
  const CUgreenCtx green = Make();
  CUdeviceptr kept = 0, freed = 0, behind = 0;
  ASSERT_EQ(cuMemAlloc_v2(&kept, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&freed, kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&behind, kMiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(REAL_AS(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)(1, "", 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(freed, nullptr), CUDA_SUCCESS);
  StreamMemory& ordered = Attached().Pager()->Ordered();
  ordered.Mark();
  ASSERT_EQ(cuMemFreeAsync(behind, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), events + 1);
  EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), events);
  FakeCuda::SetCurrent(primary);
  ordered.FreeReached();
  EXPECT_EQ(Charged(), 3 * kMiB) << "the driver waits for no work of it";
  ordered.FreeQuiet(Attached().Gates());
  EXPECT_EQ(Charged(), kMiB) << "the primary context has nothing to do any more";
  EXPECT_EQ(cuMemFree_v2(kept), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Synchronized(primary), 1u);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Events(), events);
}

}  // namespace
}  // namespace tessera::shim
