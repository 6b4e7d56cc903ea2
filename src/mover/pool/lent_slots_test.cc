#include "mover/pool/lent_slots.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "mover/testing/fake_gpu.h"
#include "mover/testing/test_pool.h"
#include "wire/line.h"

namespace tessera::mover {
namespace {

using wire::MoverMessage;
using wire::MoverType;
using Entry = KeyTable::Entry;

class LentSlotsTest : public testing::Test {
 protected:
  static constexpr pid_t kOwner = 40;

  static MoverMessage Of(MoverType type, std::uint64_t number, std::uint64_t marks = 0) {
    return {.type = type, .program = kOwner, .bytes = number, .other = number + 100, .domain = 3, .marks = marks};
  }
  // A slot comes now. Returns the errno value that the daemon is told.
  int Take(std::uint64_t number, std::uint64_t marks = 0) {
    lent_.OnSlotFor(Of(MoverType::kSlotFor, number, marks), UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
    EXPECT_TRUE(said_.back().type == MoverType::kSlotTaken && said_.back().bytes == number);
    return said_.back().error;
  }
  void Reach(std::uint64_t number, std::uint64_t marks = 0) {
    lent_.OnReach(Of(MoverType::kReach, number, marks), UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
  }
  void MapAll() {
    while (lent_.Maps()) lent_.GoOn();
  }
  Slot Claim(std::uint64_t number) {
    const auto slot = pool_.claims.Claim(number + 100, 3, kOwner);
    EXPECT_TRUE(slot.has_value());
    return slot.value_or(0);
  }

  FakeGpu gpu_;
  TestPool pool_{TableFile(8)};
  std::vector<MoverMessage> said_;
  LentSlots lent_{gpu_, pool_.slots, [this](const MoverMessage& message) { said_.push_back(message); }};
};

TEST_F(LentSlotsTest, OneIsMappedAtOnceAndTheOthersWhenTheyAreNeeded) {
  for (const std::uint64_t number : {5, 6, 7}) EXPECT_EQ(Take(number), 0);
  EXPECT_EQ(gpu_.hosts, 1);
}

TEST_F(LentSlotsTest, WhatMayComeSoonIsMappedAhead) {
  for (const std::uint64_t number : {5, 6, 7}) Reach(number);
  EXPECT_EQ(gpu_.hosts, 0) << "when there is nothing else to do";
  EXPECT_TRUE(said_.empty());
  lent_.GoOn();
  EXPECT_EQ(gpu_.hosts, 1);
  EXPECT_TRUE(said_.back().type == MoverType::kReached && said_.back().bytes == 5);
  MapAll();
  EXPECT_EQ(gpu_.hosts, 3);
  EXPECT_EQ(said_.size(), 3u);
  Reach(6);
  EXPECT_EQ(said_.size(), 4u) << "it is there";
  for (const std::uint64_t number : {5, 6, 7}) {
    EXPECT_EQ(Take(number), 0);
    EXPECT_NE(pool_.slots.MemoryOf(Claim(number)).address, 0u);
  }
  EXPECT_EQ(gpu_.hosts, 3);
}

TEST_F(LentSlotsTest, WhatComesBeforeItWasMappedComesAllTheSame) {
  Reach(5);
  Reach(6);
  EXPECT_EQ(Take(6), 0);
  EXPECT_EQ(Take(5), 0);
  EXPECT_FALSE(lent_.Maps());
}

TEST_F(LentSlotsTest, WhatDidNotComeIsFreed) {
  Reach(5);
  Reach(6);
  lent_.GoOn();
  lent_.OnReachOver(kOwner + 1);
  EXPECT_TRUE(lent_.Maps()) << "of another program";
  lent_.OnReachOver(kOwner);
  EXPECT_FALSE(lent_.Maps());
  pool_.growth.Aim(0, 8);
  EXPECT_EQ(pool_.Obey(), (TestPool::Work{.freed = 2}));
  EXPECT_EQ(Take(5), 0) << "it can come later";
}

TEST_F(LentSlotsTest, WhatCannotBeMappedIsSaidWhenItComes) {
  gpu_.reach_error = EINVAL;
  Reach(5);
  MapAll();
  EXPECT_EQ(Take(5), EINVAL);
}

// ---- memory of GPUs ----

TEST_F(LentSlotsTest, MemoryOfAGpuCountsInNoFigureAndLeavesWhenItIsFree) {
  const std::uint64_t elsewhere = Entry::kTransit | 2u << Entry::kGpuShift;
  EXPECT_EQ(Take(5, Entry::kTransit), 0);
  EXPECT_EQ(Take(6, elsewhere), 0);
  const Pool::Figures figures = pool_.slots.Count();
  EXPECT_TRUE(figures.total == 0 && figures.used == 0 && figures.free == 0);
  pool_.growth.Aim(0, 8);
  pool_.growth.Rest(true);
  pool_.slots.GiveBack(Claim(5));
  pool_.slots.GiveBack(Claim(6));
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 1u) << "of this GPU";
  EXPECT_EQ(pool_.growth.Next({}, /*loads=*/true).removed.number, 5u) << "also while nothing else is freed";
  EXPECT_EQ(pool_.growth.Next({}, /*loads=*/true).kind, PoolGrowth::Job::Kind::kNothing);
  EXPECT_EQ(pool_.Obey(), (TestPool::Work{.freed = 1})) << "of another GPU, when nothing comes in";
  EXPECT_EQ(pool_.slots.Places(), 8u);
}

TEST_F(LentSlotsTest, WhatAProgramLeftInPlaceIsItsOwn) {
  const Slot slot = pool_.slots.Add({.fd = UniqueFd(memfd_create("slot", MFD_CLOEXEC)), .transit = true});
  const std::uint64_t number = pool_.slots.EntryOf(slot).memory;
  EXPECT_FALSE(pool_.slots.Take(3)) << "others get none of it";
  EXPECT_FALSE(pool_.slots.Admit(number));
  pool_.slots.Give(slot, 3, kOwner);
  pool_.slots.Park(slot, true);
  lent_.OnLend(kOwner);
  lent_.GoOn([](pid_t owner) { return owner == kOwner; });
  EXPECT_TRUE(said_.empty()) << "it is on its way to another slot";
  lent_.GoOn();
  EXPECT_TRUE(said_.back().type == MoverType::kLent && said_.back().other == 1);
  EXPECT_TRUE(pool_.slots.EntryOf(slot).Has(Entry::kTransit) && pool_.slots.EntryOf(slot).Has(Entry::kShared));
}

TEST_F(LentSlotsTest, WhatWasGivenUpAndHasItsMemoryStillIsTheOwnersAgain) {
  EXPECT_EQ(Take(5, Entry::kTransit), 0);
  pool_.slots.GiveBack(Claim(5));  // the other mover has it
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 1u);
  EXPECT_EQ(Take(5, Entry::kTransit), 0);
  EXPECT_EQ(pool_.slots.Count().transits_given_up, 0u);
  Claim(5);
}

}  // namespace
}  // namespace tessera::mover
