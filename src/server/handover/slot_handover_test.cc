#include "server/handover/slot_handover.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "server/testing/pool_gpu.h"

namespace tessera::server {
namespace {

using wire::MoverMessage;
using wire::MoverType;
using wire::SwapEntry;

constexpr pid_t kOwner = PoolGpu::kOwner;

class SlotHandoverTest : public testing::Test {
 protected:
  SlotHandoverTest() {
    from_.Put(1, SwapEntry::kParked | SwapEntry::kShared);
    from_.Put(2, SwapEntry::kParked);  // of another time
    from_.Put(3, SwapEntry::kParked | SwapEntry::kShared);
    EXPECT_TRUE(handover_->Start([this](Result<void> result) {
      end_ = result ? 0 : result.error().code;
      if (!result) handover_.reset();
    }));
    const auto heard = from_.TakeHeard();
    EXPECT_TRUE(heard.size() == 1 && heard[0].type == MoverType::kLend && heard[0].bytes == kOwner);
  }
  void SayLent(std::uint64_t count, int error = 0) {
    from_.Say({.type = MoverType::kLent, .error = error, .bytes = kOwner, .other = count});
  }
  void SayTaken(std::uint64_t number, int error = 0) {
    to_.Say({.type = MoverType::kSlotTaken, .error = error, .bytes = number});
  }
  // The numbers of slots that it was told to let go.
  static std::vector<std::uint64_t> LetGoIn(PoolGpu& gpu) {
    std::vector<std::uint64_t> numbers;
    for (const MoverMessage& message : gpu.TakeHeard()) {
      EXPECT_EQ(message.type, MoverType::kLetGo);
      numbers.push_back(message.bytes);
    }
    return numbers;
  }
  void ExpectUndone() {
    EXPECT_EQ(to_.slots.count(), 0u);
    EXPECT_EQ(from_.slots.count(), 3u);
    EXPECT_TRUE(from_.TakeHeard().empty()) << "it keeps all";
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  PoolGpu from_{*loop_}, to_{*loop_};
  std::optional<int> end_;
  std::unique_ptr<SlotHandover> handover_ = std::make_unique<SlotHandover>(from_.Side(), to_.Side(), kOwner);
};

TEST(SlotMarks, SayOnWhichGpuMemoryLiesUnlessItIsThatPoolsOwn) {
  constexpr auto kTransit = SwapEntry::kTransit;
  const std::uint32_t on_first = kTransit | 2u << SwapEntry::kGpuShift;
  EXPECT_EQ(MarksAt(2, 1, SwapEntry::kGiven | SwapEntry::kParked), 0u) << "host memory";
  EXPECT_EQ(MarksAt(2, 1, SwapEntry::kParked | kTransit), on_first);
  EXPECT_EQ(MarksAt(3, 2, on_first), on_first) << "further";
  EXPECT_EQ(MarksAt(1, 2, on_first), kTransit) << "back";
}

TEST_F(SlotHandoverTest, GivesAllAndThenTheFirstMoverLetsGo) {
  SayLent(2);
  const auto given = to_.TakeHeard();
  ASSERT_EQ(given.size(), 2u);
  for (const std::size_t n : {0u, 1u}) {
    const std::uint64_t number = n == 0 ? 1 : 3;
    EXPECT_EQ(given[n].type, MoverType::kSlotFor);
    EXPECT_EQ(given[n].bytes, number);
    EXPECT_EQ(given[n].other, number + 70);
    EXPECT_EQ(given[n].program, static_cast<std::uint64_t>(kOwner));
    EXPECT_EQ(given[n].domain, 7u);
    EXPECT_TRUE(to_.slots.Has(number) && from_.slots.Has(number)) << "either pool leads to it";
    EXPECT_FALSE(end_);
    SayTaken(number);
  }
  EXPECT_EQ(end_, 0);
  EXPECT_TRUE(from_.TakeHeard().empty() && from_.slots.count() == 3) << "it keeps all until the end";
  handover_->Commit();
  EXPECT_EQ(LetGoIn(from_), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(from_.slots.count(), 1u);
  EXPECT_EQ(to_.slots.count(), 2u);
}

TEST_F(SlotHandoverTest, WhatHasJustComeStays) {
  handover_ = std::make_unique<SlotHandover>(from_.Side(), to_.Side(), kOwner, std::set<std::uint64_t>{1});
  EXPECT_TRUE(handover_->Start([this](const Result<void>& result) { end_ = result ? 0 : result.error().code; }));
  SayLent(2);
  EXPECT_FALSE(to_.slots.Has(1));
  SayTaken(3);
  EXPECT_EQ(end_, 0);
  EXPECT_EQ(handover_->Numbers(), std::set<std::uint64_t>{3});
  from_.TakeHeard();
  handover_->Commit();
  EXPECT_EQ(LetGoIn(from_), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(from_.slots.Has(1));
}

TEST_F(SlotHandoverTest, WhatIsNotCommittedIsUndone) {
  SayLent(2);
  SayTaken(1);
  SayTaken(3);
  EXPECT_EQ(end_, 0);
  handover_.reset();
  ExpectUndone();
}

TEST_F(SlotHandoverTest, BothKeepWhatTheNextDaemonMayLookForAtEither) {
  SayLent(2);
  SayTaken(1);
  SayTaken(3);
  handover_->KeepBoth();
  to_.TakeHeard();
  handover_.reset();
  EXPECT_TRUE(from_.TakeHeard().empty() && to_.TakeHeard().empty());
  EXPECT_TRUE(from_.slots.count() == 3 && to_.slots.count() == 2);
}

TEST_F(SlotHandoverTest, WhatIsNotTakenIsGivenBack) {
  SayLent(2);
  SayTaken(1);
  SayTaken(3, ENOSPC);
  EXPECT_EQ(end_, ENOSPC);
  to_.heard.erase(to_.heard.begin(), to_.heard.begin() + 2);  // kSlotFor
  EXPECT_EQ(LetGoIn(to_), (std::vector<std::uint64_t>{1, 3}));
  ExpectUndone();
}

TEST_F(SlotHandoverTest, WhatTheOtherMoverForgetsMeanwhileIsGivenAgain) {
  SayLent(2);
  to_.slots.Forget(1);  // an earlier stay of it has ended just now
  to_.TakeHeard();
  SayTaken(1);
  EXPECT_EQ(to_.TakeHeard().size(), 1u);
  SayTaken(3);
  EXPECT_FALSE(end_);
  SayTaken(1);
  EXPECT_EQ(end_, 0);
}

TEST_F(SlotHandoverTest, GivesAFewAtATime) {
  for (std::uint64_t number = 4; number < 24; ++number) from_.Put(number, SwapEntry::kParked | SwapEntry::kShared);
  SayLent(22);
  EXPECT_EQ(to_.TakeHeard().size(), kMostSlotsOnTheWay);
  SayTaken(3);
  EXPECT_EQ(to_.TakeHeard().size(), 1u);
}

TEST_F(SlotHandoverTest, AMoverThatEndsEndsIt) {
  SayLent(2);
  SayTaken(1);
  to_.say(nullptr);
  EXPECT_EQ(end_, EAGAIN);
  ExpectUndone();
}

TEST_F(SlotHandoverTest, TheFirstMoverIsNotNeededAnyMoreWhenItHasLent) {
  SayLent(2);
  from_.say(nullptr);
  SayTaken(1);
  SayTaken(3);
  EXPECT_EQ(end_, 0);
}

TEST_F(SlotHandoverTest, WhatIsNotParkedStays) {
  SayLent(0, EBUSY);
  EXPECT_EQ(end_, EBUSY);
  ExpectUndone();
}

TEST_F(SlotHandoverTest, WhatTheDaemonCouldNotKeepIsNotLeftBehind) {
  SayLent(3);
  EXPECT_EQ(end_, EMFILE);
  ExpectUndone();
}

TEST_F(SlotHandoverTest, OneThatIsDestroyedIsUndone) {
  SayLent(2);
  handover_.reset();
  EXPECT_FALSE(end_);
  ExpectUndone();
}

}  // namespace
}  // namespace tessera::server
