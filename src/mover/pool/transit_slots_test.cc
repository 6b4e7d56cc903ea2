#include "mover/pool/transit_slots.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "mover/pool/pool_lending.h"
#include "mover/testing/fake_gpu.h"
#include "mover/testing/test_pool.h"
#include "wire/line.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

class TransitSlotsTest : public testing::Test {
 protected:
  static constexpr pid_t kOwner = 40;

  void Make(std::uint64_t chunks) {
    Say(MoverType::kMakeTransit, chunks * kChunkBytes);
    while (transits_.Makes()) transits_.GoOn();
  }
  void Say(MoverType type, std::uint64_t bytes = 0, UniqueFd fd = {}, pid_t owner = kOwner) {
    EXPECT_TRUE(transits_.On({.type = type, .program = static_cast<std::uint64_t>(owner), .bytes = bytes}, fd));
  }
  int Take(std::uint64_t number) {
    Say(MoverType::kTransitFor, number, UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
    EXPECT_TRUE(said_.back().type == MoverType::kSlotTaken && said_.back().bytes == number);
    return said_.back().error;
  }

  FakeGpu gpu_;
  TestPool pool_{TableFile(8)};
  std::vector<MoverMessage> said_;
  PoolTransit transit_{pool_.slots};
  TransitSlots transits_{gpu_, pool_.slots, transit_, [this](const MoverMessage& message, int fd) {
                           EXPECT_EQ(fd >= 0, message.type == MoverType::kTransitMade);
                           said_.push_back(message);
                         }};
};

TEST_F(TransitSlotsTest, AreMadeOfTheGpusMemoryAndCountInNoFigure) {
  Make(6);
  ASSERT_EQ(said_.size(), 7u);
  EXPECT_TRUE(said_[0].type == MoverType::kTransitMade && said_[0].bytes != said_[1].bytes);
  EXPECT_TRUE(said_[6].type == MoverType::kTransitEnd && said_[6].error == 0 && said_[6].program == kOwner);
  EXPECT_EQ(transit_.FreeFor(kOwner), 6u);
  const Pool::Figures figures = pool_.slots.Count();
  EXPECT_TRUE(figures.total == 0 && figures.used == 0 && figures.free == 0);
  EXPECT_FALSE(pool_.slots.Take(1)) << "others get none of them";
  const auto slot = transit_.Take(kOwner);
  ASSERT_TRUE(slot);
  EXPECT_TRUE(pool_.slots.MemoryOf(*slot).transit);
}

TEST_F(TransitSlotsTest, WhatTheGpuDoesNotHaveIsSaid) {
  gpu_.hosts_left = 2;
  Make(3);
  EXPECT_TRUE(said_.back().type == MoverType::kTransitEnd && said_.back().error == ENOMEM);
  EXPECT_EQ(transit_.FreeFor(kOwner), 2u);
  said_.clear();
  gpu_.hosts_left = 100;
  Make(9);
  EXPECT_EQ(said_.back().error, ENOSPC) << "the table is full";
}

TEST_F(TransitSlotsTest, OfAnotherGpuAreMappedAtOnce) {
  EXPECT_EQ(Take(5), 0);
  EXPECT_EQ(gpu_.hosts, 1);
  EXPECT_EQ(transit_.FreeFor(kOwner), 1u);
  gpu_.reach_error = EINVAL;
  EXPECT_EQ(Take(6), EINVAL);
  Say(MoverType::kTransitFor, 7);
  EXPECT_EQ(said_.back().error, EINVAL) << "without a descriptor";
  EXPECT_EQ(transit_.FreeFor(kOwner), 1u);
}

TEST_F(TransitSlotsTest, LeaveThePoolWhenTheyComeFreeAlsoWhileItRests) {
  Make(3);
  const Slot slot = *transit_.Take(kOwner);
  pool_.slots.Give(slot, 1, kOwner);
  pool_.growth.Aim(0, 8);
  pool_.growth.Rest(true);
  EXPECT_EQ(pool_.Obey(), (TestPool::Work{}));
  pool_.slots.GiveBack(slot);
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 1u);
  EXPECT_EQ(pool_.Obey(), (TestPool::Work{.freed = 1}));
  Say(MoverType::kTransitOver);
  EXPECT_EQ(pool_.Obey(), (TestPool::Work{.freed = 2}));
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 0u);
  EXPECT_TRUE(pool_.slots.HasPlace());
}

TEST_F(TransitSlotsTest, AreNotMadeForWhoIsNoMoreUnderWay) {
  Say(MoverType::kMakeTransit, 8 * kChunkBytes);
  transits_.GoOn();
  Say(MoverType::kTransitOver, 0, {}, kOwner + 1);
  EXPECT_TRUE(transits_.Makes());
  Say(MoverType::kTransitOver);
  EXPECT_FALSE(transits_.Makes());
  EXPECT_EQ(transit_.FreeFor(kOwner), 0u);
}

TEST_F(TransitSlotsTest, OfSeveralProgramsAreMadeOneAfterTheOther) {
  Say(MoverType::kMakeTransit, 3 * kChunkBytes);
  Say(MoverType::kMakeTransit, 2 * kChunkBytes, {}, kOwner + 1);
  while (transits_.Makes()) transits_.GoOn();
  EXPECT_TRUE(transit_.FreeFor(kOwner) == 3 && transit_.FreeFor(kOwner + 1) == 2);
  std::vector<std::uint64_t> ended;
  for (const MoverMessage& message : said_) {
    if (message.type == MoverType::kTransitEnd) ended.push_back(message.program);
  }
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{kOwner, kOwner + 1}));
}

TEST_F(TransitSlotsTest, WhatWasGivenUpAndHasItsMemoryStillIsTheOwnersAgain) {
  EXPECT_EQ(Take(5), 0);
  const Slot slot = *transit_.Take(kOwner);
  pool_.slots.Give(slot, 3, kOwner);
  pool_.slots.GiveBack(slot);  // the other mover has it
  using Entry = KeyTable::Entry;
  const Entry entry = {.key = 9,
                       .owner = kOwner,
                       .marks = Entry::kGiven | Entry::kParked | Entry::kShared | Entry::kTransit,
                       .domain = 3,
                       .memory = 5};
  PoolLending lending(pool_.slots);
  EXPECT_TRUE(lending.Has(entry).value());
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 0u);
  EXPECT_EQ(pool_.claims.Claim(9, 3, kOwner), slot);
}

TEST_F(TransitSlotsTest, WhatLiesThereIsTheOwnersAtTheMoverThatMadeThem) {
  Make(1);
  const std::uint64_t number = said_[0].bytes;
  using Entry = KeyTable::Entry;
  const Entry entry = {.key = 9,
                       .owner = kOwner,
                       .marks = Entry::kGiven | Entry::kParked | Entry::kShared | Entry::kTransit,
                       .domain = 3,
                       .memory = number};
  Entry others = entry;
  others.owner = kOwner + 1;
  EXPECT_FALSE(transit_.Adopt(others));
  EXPECT_TRUE(transit_.Adopt(entry));
  EXPECT_FALSE(transit_.Adopt(entry)) << "once";
  EXPECT_EQ(transit_.FreeFor(kOwner), 0u);
  const auto slot = pool_.claims.Claim(9, 3, kOwner);
  ASSERT_TRUE(slot);
  EXPECT_EQ(pool_.slots.EntryOf(*slot).memory, number);
}

}  // namespace
}  // namespace tessera::mover
