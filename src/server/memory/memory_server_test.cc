#include "server/memory/memory_server.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/size.h"

namespace tessera::server {
namespace {

constexpr std::uint64_t kCapacity = 10 * kGiB;
constexpr std::uint64_t kContext = 100 * kMiB;

struct Member {
  SharedPage page = std::move(*SharedPage::Create(0));
  MemoryUse use{page};
};

class MemoryServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(memory_.Set(1, {.request = kGiB, .limit = kGiB}));
    ASSERT_TRUE(memory_.Set(2, {}));
    Join(1, a_);
    Join(1, b_);
    Join(2, c_);
  }
  void Join(VgpuId id, Member& member) { memory_.Join(id, member.use, 0, 0); }

  MemoryServer memory_{Ledger(0, kCapacity, 0), kContext};
  Member a_, b_, c_;
};

TEST_F(MemoryServerTest, TheLimitIsExactForSeveralProcesses) {
  EXPECT_EQ(memory_.Reserve(a_.use, 600 * kMiB, 0), 600 * kMiB);
  EXPECT_EQ(memory_.Reserve(b_.use, 425 * kMiB, 0), 0u);
  EXPECT_EQ(memory_.Reserve(b_.use, 424 * kMiB, 0), 424 * kMiB);
  EXPECT_EQ(memory_.Reserve(a_.use, 1, 0), 0u);
  const auto figures = memory_.FiguresOf(1);
  EXPECT_EQ(figures.current, kGiB);
  EXPECT_EQ(figures.peak, kGiB);
  EXPECT_EQ(figures.available, 0u);
  EXPECT_EQ(figures.oom_events, 2u);
}

// 4 GiB of host memory.
TEST(MemoryServerBlankTest, IsReadFromThePagesAndClipped) {
  using enum MemoryServer::BlankAnswer;
  MemoryServer memory{Ledger(0, kCapacity, 0, 4 * kGiB), kContext};
  ASSERT_TRUE(memory.Set(1, {.max = 14 * kGiB}));
  ASSERT_TRUE(memory.Set(2, {.max = 14 * kGiB}));
  Member thin, other;
  memory.Join(1, thin.use, 0, 0);
  memory.Join(2, other.use, 0, 0);
  ASSERT_EQ(memory.Reserve(other.use, 10 * kGiB, 0), 10 * kGiB);
  ASSERT_EQ(memory.Reserve(thin.use, kGiB, 0), kGiB);
  thin.page->blank = 2 * kGiB;
  EXPECT_EQ(memory.HasPlaceForBlank(thin.use, 0), kYes);
  EXPECT_EQ(memory.Reserve(other.use, kGiB + 1, 0), 0u);
  thin.page->blank_planned = kGiB + 1;
  EXPECT_EQ(memory.HasPlaceForBlank(thin.use, 0), kNo);
  EXPECT_EQ(memory.FiguresOf(1).oom_events, 1u);
  thin.page->blank = thin.page->blank_planned = UINT64_MAX;
  EXPECT_EQ(thin.use.Blank(), 31 * kGiB);
  memory.Leave(thin.use);
  EXPECT_EQ(memory.Reserve(other.use, 4 * kGiB, 0), 4 * kGiB) << "it has ended";
}

// 4 GiB of host memory, of which either of them may leave 3 GiB blank, but not both.
TEST(MemoryServerBlankTest, WhoPlansWhileAnotherDoesAsksOnceMore) {
  using enum MemoryServer::BlankAnswer;
  MemoryServer memory{Ledger(0, kCapacity, 0, 4 * kGiB), kContext};
  ASSERT_TRUE(memory.Set(1, {.max = 14 * kGiB}));
  ASSERT_TRUE(memory.Set(2, {.max = 14 * kGiB}));
  Member one, other;
  memory.Join(1, one.use, 0, 0);
  memory.Join(2, other.use, 0, 0);
  ASSERT_EQ(memory.Reserve(one.use, kGiB, 0), kGiB);
  ASSERT_EQ(memory.Reserve(other.use, kCapacity, 0), kCapacity);
  one.page->blank_planned = other.page->blank_planned = 3 * kGiB;
  EXPECT_EQ(memory.HasPlaceForBlank(one.use, 0), kAskAgain);
  EXPECT_EQ(memory.HasPlaceForBlank(other.use, 0), kAskAgain);
  one.page->blank_planned = 0;
  EXPECT_EQ(memory.HasPlaceForBlank(other.use, 0), kYes);
  one.page->blank_planned = 3 * kGiB;
  EXPECT_EQ(memory.FiguresOf(1).oom_events, 0u);
  EXPECT_EQ(memory.HasPlaceForBlank(one.use, 0), kNo);
  EXPECT_EQ(memory.FiguresOf(1).oom_events, 1u);
  EXPECT_EQ(memory.HasPlaceForBlank(one.use, 0), kAskAgain) << "another mapping";
  other.page->blank = 3 * kGiB;
  other.page->blank_planned = 0;
  EXPECT_EQ(memory.HasPlaceForBlank(one.use, 0), kNo);
  EXPECT_EQ(memory.HasPlaceForBlank(one.use, 0), kNo) << "it is there to stay";
}

TEST_F(MemoryServerTest, ASmallReservationComesWithCreditThatIsNotInUse) {
  EXPECT_EQ(memory_.Reserve(c_.use, kMiB, 0), kMiB);
  EXPECT_EQ(c_.page->memory_credit.load(), static_cast<std::int64_t>(16 * kMiB));
  EXPECT_EQ(c_.use.Current(), kMiB);
  EXPECT_EQ(c_.use.Charged(), 17 * kMiB);
  c_.page->memory_credit.fetch_sub(4 * kMiB);  // the program serves an allocation from it
  EXPECT_EQ(c_.use.Current(), 5 * kMiB);
}

TEST_F(MemoryServerTest, NoCreditNearTheLimit) {
  ASSERT_EQ(memory_.Reserve(a_.use, kGiB - 20 * kMiB, 0), kGiB - 20 * kMiB);
  EXPECT_EQ(memory_.Reserve(a_.use, kMiB, 0), kMiB);
  EXPECT_EQ(a_.page->memory_credit.load(), 0);
  EXPECT_EQ(a_.page->memory_credit_keep.load(), 0u);
}

TEST_F(MemoryServerTest, CreditIsTakenBackBeforeASiblingIsRefused) {
  ASSERT_EQ(memory_.Reserve(a_.use, kMiB, 0), kMiB);
  const std::int64_t credit = a_.page->memory_credit.load();
  ASSERT_GT(credit, 0);
  EXPECT_EQ(memory_.Reserve(b_.use, kGiB - kMiB, 0), kGiB - kMiB);
  EXPECT_EQ(a_.page->memory_credit.load(), 0);
  EXPECT_EQ(memory_.FiguresOf(1).current, kGiB);
}

TEST_F(MemoryServerTest, AnUnpromisedVGpuGetsTheCreditOfOthers) {
  ASSERT_TRUE(memory_.Set(3, {}));
  Member d;
  Join(3, d);
  ASSERT_EQ(memory_.Reserve(d.use, kMiB, 0), kMiB);
  EXPECT_EQ(memory_.Reserve(c_.use, 9 * kGiB - kMiB, 0), 9 * kGiB - kMiB);
  EXPECT_EQ(d.page->memory_credit.load(), 0);
  memory_.Leave(d.use);
}

TEST_F(MemoryServerTest, MessagesThatWaitAreReadBeforeARefusal) {
  ASSERT_EQ(memory_.Reserve(a_.use, kGiB, 0), kGiB);
  std::optional<VgpuId> asked;
  memory_.OnShortage([&](std::optional<VgpuId> vgpu, Nanos) {
    asked = vgpu;
    memory_.Return(a_.use, 100 * kMiB);
    EXPECT_EQ(memory_.Reserve(a_.use, kGiB, 0), 0u);  // a shortage in there does not come here again
  });
  EXPECT_EQ(memory_.Reserve(b_.use, 100 * kMiB, 0), 100 * kMiB);
  EXPECT_EQ(asked, VgpuId{1});
}

TEST_F(MemoryServerTest, NonsenseInTheCreditIsClipped) {
  ASSERT_EQ(memory_.Reserve(a_.use, 100 * kMiB, 0), 100 * kMiB);
  a_.page->memory_credit.store(INT64_MAX);
  EXPECT_EQ(a_.use.Current(), 0u);
  EXPECT_EQ(memory_.Reserve(b_.use, kGiB, 0), kGiB);  // takes it back: a hurts its own vGPU only
  EXPECT_EQ(memory_.Ledger().Held(1), kGiB);
  a_.page->memory_credit.store(INT64_MIN);
  EXPECT_EQ(a_.use.Current(), 0u);
  EXPECT_EQ(memory_.Reserve(b_.use, 1, 0), 0u);
  EXPECT_EQ(memory_.Ledger().Held(1), kGiB);
}

TEST_F(MemoryServerTest, ReturnOfMoreThanWasReservedGivesWhatWas) {
  ASSERT_EQ(memory_.Reserve(a_.use, 100 * kMiB, 0), 100 * kMiB);
  memory_.Return(a_.use, UINT64_MAX);
  EXPECT_EQ(a_.use.reserved, 0u);
  EXPECT_EQ(memory_.Ledger().Held(1), 0u);
}

// It took its memory through the kernel gate, and its shim says that it gave it back.
TEST_F(MemoryServerTest, WhatTheKernelGateCountsStaysChargedWhateverIsSaid) {
  ASSERT_EQ(memory_.Reserve(a_.use, 900 * kMiB, 0), 900 * kMiB);
  ASSERT_TRUE(memory_.Count(a_.use, 900 * kMiB));
  EXPECT_EQ(a_.use.other, 0u);
  memory_.Return(a_.use, 900 * kMiB);
  EXPECT_EQ(memory_.Ledger().Held(1), 900 * kMiB);
  EXPECT_FALSE(memory_.Count(a_.use, 900 * kMiB + kGiB));
  ASSERT_TRUE(memory_.Count(a_.use, 100 * kMiB));
  EXPECT_EQ(memory_.Ledger().Held(1), 100 * kMiB);
  memory_.CountAnyway(a_.use, 2 * kGiB);
  EXPECT_EQ(memory_.FiguresOf(1).current, 2 * kGiB);
}

// The daemon restarts, and a process reports more memory than the GPU has: the rest lies in host memory.
TEST(MemoryServerWithSwap, ProcessThatComesBackIsChargedForItsHostMemory) {
  MemoryServer memory{Ledger(0, kCapacity, 0, 5 * kGiB, 8 * kGiB), kContext};
  Member large, liar;
  ASSERT_TRUE(memory.Set(1, {}));
  memory.Join(1, large.use, 12 * kGiB, 0);
  EXPECT_EQ(memory.Ledger().Held(1), 12 * kGiB);
  ASSERT_TRUE(memory.Set(2, {}));
  memory.Join(2, liar.use, UINT64_MAX, 0);
  EXPECT_EQ(memory.Ledger().Held(2), 18 * kGiB) << "what GPU, pool and file hold";
}

TEST_F(MemoryServerTest, ContextsCostUntilTheyAreDropped) {
  EXPECT_EQ(memory_.AddContext(a_.use, 0), kContext);
  EXPECT_EQ(memory_.AddContext(a_.use, 0), kContext);
  EXPECT_EQ(memory_.FiguresOf(1).current, 2 * kContext);
  memory_.DropContext(a_.use);
  memory_.DropContext(a_.use);
  memory_.DropContext(a_.use);  // one too many
  EXPECT_EQ(memory_.FiguresOf(1).current, 0u);
  ASSERT_EQ(memory_.Reserve(a_.use, kGiB - 50 * kMiB, 0), kGiB - 50 * kMiB);
  EXPECT_EQ(memory_.AddContext(a_.use, 0), 0u);
}

TEST_F(MemoryServerTest, WhatTheDeviceSaysBeyondTheChargeIsCharged) {
  ASSERT_EQ(memory_.AddContext(a_.use, 0), kContext);
  ASSERT_EQ(memory_.Reserve(a_.use, 200 * kMiB, 0), 200 * kMiB);
  a_.use.BeginMeasurement();
  memory_.Reconcile(a_.use, 450 * kMiB);
  EXPECT_EQ(a_.use.other, 150 * kMiB);
  EXPECT_EQ(memory_.FiguresOf(1).current, 450 * kMiB);
  a_.use.BeginMeasurement();
  memory_.Reconcile(a_.use, 250 * kMiB);  // less than the charge: what was asked for stays charged
  EXPECT_EQ(memory_.FiguresOf(1).current, 300 * kMiB);
}

TEST_F(MemoryServerTest, AMeasurementTakesThePlaceOfTheOneBefore) {
  ASSERT_EQ(memory_.Reserve(a_.use, 100 * kMiB, 0), 100 * kMiB);
  const std::uint64_t reserved = a_.use.reserved;
  for (const std::uint64_t beyond : {50 * kMiB, 80 * kMiB, 20 * kMiB}) {
    a_.use.BeginMeasurement();
    memory_.Reconcile(a_.use, reserved + beyond);
    EXPECT_EQ(a_.use.other, beyond);
    EXPECT_EQ(memory_.Ledger().Held(1), reserved + beyond) << "what was charged before is given back";
  }
  memory_.Leave(a_.use);
  EXPECT_EQ(memory_.Ledger().Held(1), 0u);
  Join(1, a_);
}

TEST_F(MemoryServerTest, MemoryFreedDuringAMeasurementIsNotCharged) {
  ASSERT_EQ(memory_.AddContext(a_.use, 0), kContext);
  ASSERT_EQ(memory_.Reserve(a_.use, 500 * kMiB, 0), 500 * kMiB);
  a_.use.BeginMeasurement();
  memory_.Return(a_.use, 500 * kMiB);
  memory_.Reconcile(a_.use, 600 * kMiB);
  EXPECT_EQ(a_.use.other, 0u);
}

TEST_F(MemoryServerTest, AProcessWithNothingButAContextShowsItsPrice) {
  ASSERT_EQ(memory_.AddContext(a_.use, 0), kContext);
  a_.use.BeginMeasurement();
  memory_.Reconcile(a_.use, 60 * kMiB);  // perhaps still growing
  EXPECT_EQ(memory_.ContextBytes(), kContext);
  memory_.Reconcile(a_.use, 121 * kMiB);
  EXPECT_EQ(memory_.ContextBytes(), 122 * kMiB);
  memory_.Reconcile(a_.use, 8 * kGiB);  // hides memory from us
  EXPECT_EQ(memory_.ContextBytes(), 2 * kContext);
}

TEST_F(MemoryServerTest, WhatAProcessHeldAtAReconnectIsAccepted) {
  Member d;
  memory_.Join(1, d.use, 2 * kGiB, 1);
  EXPECT_EQ(memory_.FiguresOf(1).current, 2 * kGiB + kContext);
  EXPECT_EQ(memory_.FiguresOf(1).available, 0u);
  Member e;
  memory_.Join(2, e.use, UINT64_MAX, UINT32_MAX);
  EXPECT_LE(e.use.Charged(), 2 * kCapacity);
  memory_.Leave(d.use);
  memory_.Leave(e.use);
  EXPECT_EQ(memory_.Ledger().Held(), 0u);
}

TEST_F(MemoryServerTest, PagesShowTheView) {
  ASSERT_EQ(memory_.Reserve(a_.use, 100 * kMiB, 0), 100 * kMiB);
  EXPECT_EQ(b_.page->memory_max.load(), kGiB);
  EXPECT_EQ(b_.page->memory_available.load(), kGiB - 100 * kMiB);
  EXPECT_EQ(c_.page->memory_max.load(), 9 * kGiB);
  ASSERT_TRUE(memory_.Set(1, {.request = 2 * kGiB, .limit = 2 * kGiB}));
  EXPECT_EQ(b_.page->memory_max.load(), 2 * kGiB);
  EXPECT_EQ(c_.page->memory_available.load(), 8 * kGiB);
  EXPECT_EQ(c_.page->memory_credit_keep.load(), 64 * kMiB);
}

}  // namespace
}  // namespace tessera::server
