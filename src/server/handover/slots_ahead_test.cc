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
  ahead_.reset();
  const auto heard = to_.TakeHeard();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_TRUE(heard[0].type == MoverType::kReachOver && heard[0].program == kOwner);
}

TEST_F(SlotsAheadTest, TellsOfWhatTheProgramLeaves) {
  Begin(SlotsAhead::What::kLeft);
  EXPECT_TRUE(to_.TakeHeard().empty());
  SayLeft(7);
  SayLeft(8, kOwner + 1);
  SayLeft(9);
  EXPECT_EQ(Heard(SwapEntry::kTransit | 2u << SwapEntry::kGpuShift), (std::vector<std::uint64_t>{7, 9}));
}

TEST_F(SlotsAheadTest, OfAFewAtATime) {
  Begin(SlotsAhead::What::kLeft);
  for (std::uint64_t number = 1; number <= 20; ++number) SayLeft(number);
  EXPECT_EQ(to_.TakeHeard().size(), 16u);
  for (std::uint64_t number = 1; number <= 4; ++number) to_.Say({.type = MoverType::kReached, .bytes = number});
  EXPECT_EQ(to_.TakeHeard().size(), 4u);
  to_.Say({.type = MoverType::kReached, .bytes = 99});
  EXPECT_TRUE(to_.TakeHeard().empty());
}

TEST_F(SlotsAheadTest, WhatIsFreedMeanwhileIsLeftOut) {
  Begin(SlotsAhead::What::kLeft);
  from_.Say({.type = MoverType::kSlotLeft, .program = kOwner, .bytes = 7});  // the daemon could not keep it
  SayLeft(8);
  EXPECT_EQ(to_.TakeHeard().size(), 1u);
}

TEST_F(SlotsAheadTest, AMoverThatEndsHearsNothingMore) {
  Begin(SlotsAhead::What::kLeft);
  for (std::uint64_t number = 1; number <= 20; ++number) SayLeft(number);
  to_.TakeHeard();
  to_.say(nullptr);
  to_.link.Reap();
  to_.link.Ensure(10 * kSecond);
  to_.Say({.type = MoverType::kReady});
  to_.TakeHeard();
  to_.Say({.type = MoverType::kReached, .bytes = 1});
  EXPECT_TRUE(to_.TakeHeard().empty());
}

}  // namespace
}  // namespace tessera::server
