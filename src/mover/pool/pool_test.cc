#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "mover/pool/pool_lending.h"
#include "mover/testing/test_pool.h"

namespace tessera::mover {
namespace {

TEST(Pool, SlotStaysInItsDomain) {
  TestPool pool(TableFile(32));
  pool.growth.Aim(2, 2);
  pool.Obey();
  const Slot given = *pool.slots.Take(1), kept = *pool.slots.Take(1);
  pool.slots.Give(given, 1, getpid());
  pool.slots.GiveBack(given);
  pool.slots.GiveBack(kept);
  EXPECT_EQ(pool.slots.FreeFor(1), 2u);
  EXPECT_EQ(pool.slots.FreeFor(2), 1u);
  EXPECT_EQ(pool.slots.Take(1), given) << "first what only this domain can use";
  pool.slots.GiveBack(given);
  EXPECT_EQ(pool.slots.Take(2), kept);
  EXPECT_FALSE(pool.slots.Take(2));
}

KeyTable::Entry LentEntry(std::uint64_t number) {
  using Entry = KeyTable::Entry;
  return {.key = 70 + number,
          .owner = getpid(),
          .marks = Entry::kGiven | Entry::kParked | Entry::kShared,
          .domain = 7,
          .memory = number};
}

TEST(Pool, AFreeSlotMakesPlaceForOneThatIsLent) {
  TestPool pool(TableFile(2));
  pool.growth.Aim(2, 2);
  pool.Obey();
  HostMemory memory;
  EXPECT_TRUE(PoolLending(pool.slots).Add(LentEntry(1), memory));
  EXPECT_TRUE(PoolLending(pool.slots).Add(LentEntry(2), memory));
  EXPECT_FALSE(PoolLending(pool.slots).Add(LentEntry(3), memory)) << "both are in use";
  EXPECT_EQ(pool.slots.Count().total, 2u);
  EXPECT_EQ(pool.slots.Count().used, 2u);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 0, .freed = 2}));
  EXPECT_TRUE(pool.claims.Claim(71, 7, getpid()) && pool.claims.Claim(72, 7, getpid()));
}

// Two pools have its memory.
TEST(Pool, WhatWasLentIsNeverAnothersMemory) {
  UniqueFd file = TableFile(4);
  {
    TestPool pool(UniqueFd(dup(file.Get())));
    pool.growth.Aim(2, 2);
    pool.Obey();
    const Slot parked = *pool.slots.Take(7), held = *pool.slots.Take(7);
    pool.slots.Give(parked, 7, getpid());
    pool.slots.Give(held, 7, getpid());
    pool.slots.Park(parked, true);
    EXPECT_EQ(PoolLending(pool.slots).Lend(getpid()).error().code, EBUSY);
    pool.slots.GiveBack(held);
    EXPECT_EQ(*PoolLending(pool.slots).Lend(getpid()), 1u);
    EXPECT_EQ(*PoolLending(pool.slots).Lend(getppid()), 0u);
    pool.slots.GiveBack(parked);
    EXPECT_EQ(pool.slots.Count().free, 1u);
    EXPECT_EQ(pool.slots.Count().used, 0u);
    // The mover dies before it has removed it.
    const std::uint64_t number = pool.slots.EntryOf(parked).memory;
    TestPool next(UniqueFd(dup(file.Get())));
    next.slots.Restore(*next.slots.Earlier(number), {});
    EXPECT_EQ(next.slots.FreeFor(7), 0u);
    next.growth.Aim(0, 4);
    EXPECT_EQ(next.Obey(), (TestPool::Work{.made = 0, .freed = 1}));
  }
}

// It comes back to a pool that has forgotten it, or not.
TEST(Pool, HasEachMemoryOnce) {
  TestPool pool(TableFile(4));
  pool.growth.Aim(0, 4);
  HostMemory memory;
  EXPECT_FALSE(*PoolLending(pool.slots).Has(LentEntry(1)));
  EXPECT_TRUE(PoolLending(pool.slots).Add(LentEntry(1), memory));
  EXPECT_TRUE(*PoolLending(pool.slots).Has(LentEntry(1)));
  KeyTable::Entry other = LentEntry(1);
  ++other.key;
  EXPECT_EQ(PoolLending(pool.slots).Has(other).error().code, EBUSY);
  const Slot slot = *pool.claims.Claim(71, 7, getpid());
  EXPECT_EQ(PoolLending(pool.slots).Has(LentEntry(1)).error().code, EBUSY) << "its program has it";
  pool.claims.Leave(slot, kNever);
  pool.claims.LetGo(1);
  EXPECT_TRUE(*PoolLending(pool.slots).Has(LentEntry(1))) << "it was not removed yet";
  pool.claims.Abandon(getpid());
  EXPECT_TRUE(*PoolLending(pool.slots).Has(LentEntry(1))) << "likewise";
  EXPECT_EQ(pool.Obey(), (TestPool::Work{}));
  pool.claims.LetGo(1);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 0, .freed = 1}));
  EXPECT_FALSE(*PoolLending(pool.slots).Has(LentEntry(1)));
  EXPECT_TRUE(PoolLending(pool.slots).Add(LentEntry(1), memory));
  EXPECT_EQ(pool.slots.EntryOf(slot).memory, 1u) << "in the place that the table had for it";
}

}  // namespace
}  // namespace tessera::mover
