#include "shim/memory/ledger.h"

#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using namespace cuda;

class LedgerTest : public ShimFixture {
 protected:
  LedgerTest() : ShimFixture(false) {
    shared.memory_credit = kCredit;
    shared.memory_credit_keep = kCredit;
    const MutexLock lock(page.holding);
    page.Follow(&shared, gpu);
  }
  std::uint64_t Charged() const { return static_cast<std::uint64_t>(kCredit - shared.memory_credit); }
  CUresult Allocate(std::uint64_t key, std::uint64_t bytes, CUcontext context = nullptr,
                    CUresult result = CUDA_SUCCESS) {
    return Counted(
        &room, context, ChargeOf(bytes), wire::PinReason::kArray, [=] { return result; }, [=] { return key; });
  }

  static constexpr std::int64_t kCredit = std::int64_t{1} << 33;
  wire::Page shared;
  FollowedPage page;
  HostMemory host;
  MemoryAccount memory{page};
  RoomAccount room{page, memory, host};
  const std::uint64_t key = 0x9000'0000'0000 + (std::uint64_t{gpu} << 32);  // no other test's
};

TEST_F(LedgerTest, ChargesAreInUnitsOfTheDriver) {
  EXPECT_EQ(ChargeOf(0), 0u);
  EXPECT_EQ(ChargeOf(1), 512u);
  EXPECT_EQ(ChargeOf(512), 512u);
  EXPECT_EQ(ChargeOf(513), 1024u);
  EXPECT_EQ(ChargeOf(2 * kMiB - 1), 2 * kMiB);
  EXPECT_EQ(ChargeOf(2 * kMiB + 1), 4 * kMiB);
  EXPECT_EQ(ChargeOf(UINT64_MAX - 5), UINT64_MAX - 5) << "rounding must not wrap";
}

TEST_F(LedgerTest, AFreeGivesBackWhatTheAllocationTook) {
  EXPECT_EQ(Allocate(key, 1000), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(key + 1, 3 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 1024 + 4 * kMiB);
  EXPECT_EQ(CountedFree(key, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB);
  EXPECT_EQ(CountedFree(key, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 4 * kMiB) << "once";
  CountedFree(key + 1, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, AFailedAllocationIsNotCharged) {
  EXPECT_EQ(Allocate(key, 1000, nullptr, CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, AFailedFreeStaysCharged) {
  ASSERT_EQ(Allocate(key, 1000), CUDA_SUCCESS);
  EXPECT_EQ(CountedFree(key, [] { return CUDA_ERROR_INVALID_VALUE; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 1024u);
  CountedFree(key, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, TheChargeIsGivenBackAfterTheDriverHasFreed) {
  ASSERT_EQ(Allocate(key, 1000), CUDA_SUCCESS);
  CountedFree(key, [this] {
    EXPECT_EQ(Charged(), 1024u) << "two of the vGPU's processes must never hold one byte";
    return CUDA_SUCCESS;
  });
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, BeyondTheLimitTheDriverIsNotCalled) {
  shared.memory_credit = 0;
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.reserve = [](std::uint64_t) { return wire::Reserved{}; }; });
  bool called = false;
  const auto make = [&] {
    called = true;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(Counted(&room, nullptr, 512, wire::PinReason::kArray, make, [this] { return key; }),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(called);
}

TEST_F(LedgerTest, WhoIsNotManagedIsNotCharged) {
  EXPECT_EQ(Counted(
                nullptr, nullptr, 512, wire::PinReason::kArray, [] { return CUDA_SUCCESS; }, [this] { return key; }),
            CUDA_SUCCESS);
  EXPECT_EQ(CountedFree(key, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, AnAddressThatComesAgainGivesTheOldEntryBack) {
  ASSERT_EQ(Allocate(key, 1000), CUDA_SUCCESS);
  ASSERT_EQ(Allocate(key, 5000), CUDA_SUCCESS);
  EXPECT_EQ(Charged(), 5120u);
  CountedFree(key, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(LedgerTest, AContextTakesItsAllocationsAlong) {
  const CUcontext one = Cuda().MakeContext(device), other = Cuda().MakeContext(device);
  Allocate(key, 1000, one);
  Allocate(key + 1, 1000, one);
  Allocate(key + 2, 1000, other);
  Allocate(key + 3, 1000);
  GiveBackOf(one);
  EXPECT_EQ(Charged(), 2 * 1024u);
  GiveBackOf(one);
  EXPECT_EQ(Charged(), 2 * 1024u);
  EXPECT_EQ(Forget(key).room, nullptr);
  CountedFree(key + 2, [] { return CUDA_SUCCESS; });
  CountedFree(key + 3, [] { return CUDA_SUCCESS; });
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace tessera::shim
