#include "server/handover/slots_ahead.h"

#include <gtest/gtest.h>

#include <memory>

#include "server/testing/pool_gpu.h"

namespace tessera::server {
namespace {

using wire::MoverMessage;
using wire::MoverType;
using wire::SwapEntry;

class SlotsAheadTest : public testing::Test {
 protected:
  static constexpr pid_t kOwner = PoolGpu::kOwner;
  void Begin(SlotsAhead::What what, std::uint64_t most = 100) {
    ahead_ = std::make_unique<SlotsAhead>(from_.Side(), to_.Side(), kOwner, what, most);
  }
  // The numbers of slots that the new GPU's mover has heard of.
  std::vector<std::uint64_t> Heard(std::uint64_t marks = 0) {
    std::vector<std::uint64_t> numbers;
    for (const MoverMessage& message : to_.TakeHeard()) {
      EXPECT_TRUE(message.type == MoverType::kReach && message.program == kOwner && message.marks == marks);
      numbers.push_back(message.bytes);
    }
    return numbers;
  }
  void SayLeft(std::uint64_t number, pid_t owner = kOwner) {
    from_.slots.Keep(number, UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
    from_.Say({.type = MoverType::kSlotLeft, .program = static_cast<std::uint64_t>(owner), .bytes = number});
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  PoolGpu from_{*loop_, 1}, to_{*loop_, 2};
  std::unique_ptr<SlotsAhead> ahead_;
};

TEST_F(SlotsAheadTest, TellsOfFreeSlots) {
  for (const std::uint64_t number : {1, 3, 4}) from_.PutFree(number, SwapEntry::kGiven);
  from_.Put(2, SwapEntry::kGiven);
  from_.PutFree(5, SwapEntry::kTransit);
  Begin(SlotsAhead::What::kFree, 2);
  EXPECT_EQ(Heard(), (std::vector<std::uint64_t>{1, 3}));
  SayLeft(9);
  EXPECT_TRUE(Heard().empty()) << "it goes on to one of the others";
  from_.Say({.type = MoverType::kShownAll, .program = kOwner});
  EXPECT_FALSE(ahead_->Settled());
  for (const std::uint64_t number : {1, 3}) to_.Say({.type = MoverType::kReached, .bytes = number});
  EXPECT_TRUE(ahead_->Settled());
  ahead_.reset();
  const auto heard = to_.TakeHeard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_TRUE(heard[0].type == MoverType::kReachOver && heard[0].program == kOwner);
}

TEST_F(SlotsAheadTest, TellsOfWhatTheProgramShows) {
  Begin(SlotsAhead::What::kShown, 3);
  auto asked = from_.TakeHeard();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(asked[0].type == MoverType::kShow && asked[0].bytes == 3 * wire::kChunkBytes);
  EXPECT_TRUE(to_.TakeHeard().empty());
  SayLeft(7);
  SayLeft(8, kOwner + 1);
  SayLeft(9);
  EXPECT_EQ(Heard(SwapEntry::kTransit | 2u << SwapEntry::kGpuShift), (std::vector<std::uint64_t>{7, 9}));
  for (const std::uint64_t number : {7, 9}) to_.Say({.type = MoverType::kReached, .bytes = number});
  EXPECT_FALSE(ahead_->Settled());
  from_.Say({.type = MoverType::kShownAll, .program = kOwner + 1});
  EXPECT_FALSE(ahead_->Settled());
  from_.Say({.type = MoverType::kShownAll, .program = kOwner});
  EXPECT_TRUE(ahead_->Settled());
  ahead_.reset();
  asked = from_.TakeHeard();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(asked[0].type == MoverType::kShow && asked[0].bytes == 0);
}

TEST_F(SlotsAheadTest, OfAFewAtATime) {
  Begin(SlotsAhead::What::kShown);
  for (std::uint64_t number = 1; number <= 20; ++number) SayLeft(number);
  EXPECT_EQ(to_.TakeHeard().size(), 16u);
  for (std::uint64_t number = 1; number <= 4; ++number) to_.Say({.type = MoverType::kReached, .bytes = number});
  EXPECT_EQ(to_.TakeHeard().size(), 4u);
  to_.Say({.type = MoverType::kReached, .bytes = 99});
  EXPECT_TRUE(to_.TakeHeard().empty());
}

TEST_F(SlotsAheadTest, WhatIsFreedMeanwhileIsLeftOut) {
  Begin(SlotsAhead::What::kShown);
  from_.Say({.type = MoverType::kSlotLeft, .program = kOwner, .bytes = 7});  // the daemon could not keep it
  SayLeft(8);
  EXPECT_EQ(to_.TakeHeard().size(), 1u);
}

TEST_F(SlotsAheadTest, AMoverThatEndsHearsNothingMore) {
  Begin(SlotsAhead::What::kShown);
  for (std::uint64_t number = 1; number <= 20; ++number) SayLeft(number);
  to_.TakeHeard();
  to_.say(nullptr);
  EXPECT_FALSE(ahead_->Settled()) << "the program shows still";
  from_.say(nullptr);
  EXPECT_TRUE(ahead_->Settled());
  to_.link.Reap();
  to_.link.Ensure(10 * kSecond);
  to_.Say({.type = MoverType::kReady});
  to_.TakeHeard();
  to_.Say({.type = MoverType::kReached, .bytes = 1});
  EXPECT_TRUE(to_.TakeHeard().empty());
}

}  // namespace
}  // namespace tessera::server
