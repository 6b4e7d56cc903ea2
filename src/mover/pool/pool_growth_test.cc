#include "mover/pool/pool_growth.h"

#include <gtest/gtest.h>

#include "mover/testing/test_pool.h"

namespace tessera::mover {
namespace {

using Kind = PoolGrowth::Job::Kind;

TEST(PoolGrowth, GrowsAndShrinksToWhatIsWanted) {
  TestPool pool(TableFile(32));
  EXPECT_EQ(pool.Obey(), (TestPool::Work{}));
  pool.growth.Aim(5, 10);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 5}));
  pool.growth.Aim(20, 7);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 2}));
  pool.growth.Aim(3, 10);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 4}));
}

TEST(PoolGrowth, GrowsOnDemandUpToTheMost) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 6);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 2}));
  EXPECT_EQ(pool.Obey({{1, 4}}), (TestPool::Work{.made = 2}));
  EXPECT_EQ(pool.Obey({{1, 3}, {2, 9}}), (TestPool::Work{.made = 2}));
  EXPECT_EQ(pool.slots.FreeFor(1), 6u);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 4}));
}

TEST(PoolGrowth, ThatRestsMakesAndFreesOnlyWhatIsWaitedFor) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 6);
  pool.growth.Rest(true);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{}));
  EXPECT_EQ(pool.Obey({{1, 3}}), (TestPool::Work{.made = 3}));
  const Slot slot = *pool.slots.Take(1);
  pool.slots.GiveUp(slot);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{})) << "nobody waits for its end";
  pool.growth.Rest(false);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 1}));
}

TEST(PoolGrowth, KeepsWhatIsInUse) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(3, 3);
  pool.Obey();
  const Slot slot = *pool.slots.Take(1);
  EXPECT_EQ(pool.slots.Count().used, 1u);
  pool.growth.Aim(0, 0);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 2}));
  EXPECT_EQ(pool.slots.Count().total, 1u);
  pool.slots.GiveBack(slot);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 1}));
}

TEST(PoolGrowth, MakesSlotsAnewForOtherDomains) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(4, 4);
  pool.Obey();
  for (int i = 0; i < 4; ++i) pool.slots.Give(*pool.slots.Take(1), 1, getpid());
  for (Slot slot = 0; slot < 4; ++slot) pool.slots.GiveBack(slot);
  EXPECT_EQ(pool.Obey({{2, 3}}), (TestPool::Work{.made = 3, .freed = 3}));
  EXPECT_EQ(pool.slots.FreeFor(2), 3u);
  EXPECT_EQ(pool.slots.FreeFor(1), 4u);
}

TEST(PoolGrowth, LeavesADomainWhatItWantsItself) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 2);
  pool.Obey();
  std::vector<Slot> slots = {*pool.slots.Take(1), *pool.slots.Take(1)};
  for (const Slot slot : slots) pool.slots.Give(slot, 1, getpid());
  for (const Slot slot : slots) pool.slots.GiveBack(slot);
  EXPECT_EQ(pool.Obey({{1, 2}, {2, 2}}), (TestPool::Work{}));
}

TEST(PoolGrowth, StopsWithoutMemoryAndGoesOnWhenSomeIsFreed) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 4);
  EXPECT_EQ(pool.growth.Next({}).kind, Kind::kMake);
  pool.growth.Ended();
  pool.growth.Stop();
  EXPECT_EQ(pool.growth.Next({{1, 1}}).kind, Kind::kNothing);
  pool.growth.Resume();
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 2}));
  const Slot slot = *pool.slots.Take(1);
  pool.slots.Give(slot, 1, getpid());
  pool.slots.GiveUp(slot);
  pool.growth.Stop();
  EXPECT_EQ(pool.slots.Count().used, 0u);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 1, .freed = 1}));
}

TEST(PoolGrowth, HasNoMoreSlotsThanItsTableHasEntries) {
  TestPool pool(TableFile(3));
  pool.growth.Aim(5, 10);
  EXPECT_EQ(pool.Obey({{1, 9}}), (TestPool::Work{.made = 3}));
}

TEST(PoolGrowth, MakesAsManySlotsAtOnceAsItIsAsked) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 3);
  EXPECT_EQ(pool.growth.Next({}).kind, Kind::kMake);
  EXPECT_EQ(pool.growth.Next({}).kind, Kind::kMake);
  EXPECT_EQ(pool.growth.Next({}).kind, Kind::kNothing);
  EXPECT_EQ(pool.growth.Next({{1, 3}}).kind, Kind::kMake);
  EXPECT_EQ(pool.growth.Next({{1, 9}}).kind, Kind::kNothing);
  for (int i = 0; i < 3; ++i) {
    pool.slots.Admit(pool.slots.EntryOf(pool.slots.Add({})).memory);
    pool.growth.Ended();
  }
  EXPECT_EQ(pool.Obey({{1, 9}}), (TestPool::Work{}));
}

TEST(PoolGrowth, PreparesWhereThereIsNothingElseToDo) {
  TestPool pool(TableFile(32));
  pool.growth.AimAhead(6);
  EXPECT_EQ(pool.Prepare({}), (TestPool::Work{})) << "it does not know how many it may have";
  pool.growth.Aim(2, 5);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 2}));
  EXPECT_EQ(pool.Prepare({}), (TestPool::Work{.made = 3}));
  EXPECT_EQ(pool.Obey(), (TestPool::Work{})) << "what is prepared stays";
  const Slot slot = *pool.slots.Take(1);
  pool.growth.AimAhead(1);
  EXPECT_EQ(pool.Obey({{1, 1}}), (TestPool::Work{})) << "not while somebody may take them";
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.freed = 4}));
  pool.slots.GiveBack(slot);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{}));
}

TEST(PoolGrowth, PreparesOneSlotAtATimeAndNoneWithoutMemory) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(0, 8);
  pool.growth.AimAhead(4);
  EXPECT_EQ(pool.growth.Prepare({}).kind, Kind::kMake);
  EXPECT_EQ(pool.growth.Prepare({}).kind, Kind::kNothing);
  pool.growth.Ended();
  pool.growth.Stop();
  EXPECT_EQ(pool.growth.Prepare({}).kind, Kind::kNothing);
  pool.growth.Resume();
  EXPECT_EQ(pool.growth.Prepare({}).kind, Kind::kMake);
}

TEST(PoolGrowth, PreparesAnewWhatNoProgramCouldTake) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(0, 4);
  pool.growth.AimAhead(4);
  EXPECT_EQ(pool.Prepare({1}), (TestPool::Work{.made = 4}));
  std::vector<Slot> slots;
  for (int i = 0; i < 3; ++i) {
    slots.push_back(*pool.slots.Take(1));
    pool.slots.Give(slots.back(), 1, getpid());
  }
  EXPECT_EQ(pool.Prepare({2}), (TestPool::Work{})) << "they are in use";
  for (const Slot slot : slots) pool.slots.GiveBack(slot);
  EXPECT_EQ(pool.Prepare({1, 2}), (TestPool::Work{}));
  EXPECT_EQ(pool.Prepare({2}), (TestPool::Work{.made = 3, .freed = 3}));
  EXPECT_EQ(pool.slots.FreeFor(2), 4u);
}

}  // namespace
}  // namespace tessera::mover
