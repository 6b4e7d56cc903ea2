#include "mover/pool.h"

#include <gtest/gtest.h>

namespace tessera::mover {
namespace {

using Kind = Pool::Job::Kind;

// Does what the pool says until it says nothing more; how many slots were made and freed for it.
struct Work {
  int made = 0, freed = 0;
  bool operator==(const Work&) const = default;
};
Work Obey(Pool& pool, const Demand& demand = {}) {
  Work work;
  while (true) {
    const Pool::Job job = pool.Next(demand);
    if (job.kind == Kind::kNothing || work.made + work.freed > 100) return work;
    if (job.kind == Kind::kFree) {
      ++work.freed;
    } else {
      ++work.made;
      pool.Add({});
    }
  }
}

TEST(Pool, GrowsAndShrinksToWhatIsWanted) {
  Pool pool;
  EXPECT_EQ(Obey(pool), (Work{}));
  pool.Aim(5, 10);
  EXPECT_EQ(Obey(pool), (Work{.made = 5}));
  pool.Aim(20, 7);
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  pool.Aim(3, 10);
  EXPECT_EQ(Obey(pool), (Work{.freed = 4}));
}

TEST(Pool, GrowsOnDemandUpToTheMost) {
  Pool pool;
  pool.Aim(2, 6);
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  EXPECT_EQ(Obey(pool, {{1, 4}}), (Work{.made = 2}));
  EXPECT_EQ(Obey(pool, {{1, 3}, {2, 9}}), (Work{.made = 2}));
  EXPECT_EQ(pool.FreeFor(1), 6u);
  EXPECT_EQ(Obey(pool), (Work{.freed = 4}));
}

TEST(Pool, KeepsWhatIsInUse) {
  Pool pool;
  pool.Aim(3, 3);
  Obey(pool);
  const Slot slot = *pool.Take(1);
  EXPECT_EQ(pool.used(), 1u);
  pool.Aim(0, 0);
  EXPECT_EQ(Obey(pool), (Work{.freed = 2}));
  EXPECT_EQ(pool.total(), 1u);
  pool.GiveBack(slot);
  EXPECT_EQ(Obey(pool), (Work{.freed = 1}));
}

TEST(Pool, SlotStaysInItsDomain) {
  Pool pool;
  pool.Aim(2, 2);
  Obey(pool);
  const Slot given = *pool.Take(1), kept = *pool.Take(1);
  pool.MarkGiven(given, 1);
  pool.GiveBack(given);
  pool.GiveBack(kept);
  EXPECT_EQ(pool.FreeFor(1), 2u);
  EXPECT_EQ(pool.FreeFor(2), 1u);
  EXPECT_EQ(pool.Take(1), given) << "first what only this domain can use";
  pool.GiveBack(given);
  EXPECT_EQ(pool.Take(2), kept);
  EXPECT_FALSE(pool.Take(2));
}

TEST(Pool, MakesSlotsAnewForOtherDomains) {
  Pool pool;
  pool.Aim(4, 4);
  Obey(pool);
  for (int i = 0; i < 4; ++i) pool.MarkGiven(*pool.Take(1), 1);
  for (Slot slot = 0; slot < 4; ++slot) pool.GiveBack(slot);
  EXPECT_EQ(Obey(pool, {{2, 3}}), (Work{.made = 3, .freed = 3}));
  EXPECT_EQ(pool.FreeFor(2), 3u);
  EXPECT_EQ(pool.FreeFor(1), 4u);
}

TEST(Pool, LeavesADomainWhatItWantsItself) {
  Pool pool;
  pool.Aim(2, 2);
  Obey(pool);
  std::vector<Slot> slots = {*pool.Take(1), *pool.Take(1)};
  for (const Slot slot : slots) pool.MarkGiven(slot, 1);
  for (const Slot slot : slots) pool.GiveBack(slot);
  EXPECT_EQ(Obey(pool, {{1, 2}, {2, 2}}), (Work{}));
}

TEST(Pool, StopsWithoutMemoryAndGoesOnWhenSomeIsFreed) {
  Pool pool;
  pool.Aim(2, 4);
  EXPECT_EQ(pool.Next({}).kind, Kind::kMake);
  pool.Stop();
  EXPECT_EQ(pool.Next({{1, 1}}).kind, Kind::kNothing);
  pool.Resume();
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  const Slot slot = *pool.Take(1);
  pool.MarkGiven(slot, 1);
  pool.GiveUp(slot);
  pool.Stop();
  EXPECT_EQ(pool.used(), 0u);
  EXPECT_EQ(Obey(pool), (Work{.made = 1, .freed = 1}));
}

TEST(Pool, AdoptedSlotsAreInUseAndOfTheirDomain) {
  Pool pool;
  pool.Aim(1, 1);
  Obey(pool);
  const Slot slot = pool.Adopt({}, 5);
  EXPECT_EQ(pool.total(), 2u);
  EXPECT_EQ(pool.used(), 1u);
  pool.GiveBack(slot);
  EXPECT_EQ(pool.FreeFor(5), 2u);
  EXPECT_EQ(pool.FreeFor(1), 1u);
  EXPECT_EQ(Obey(pool), (Work{.freed = 1}));
  EXPECT_EQ(pool.FreeFor(1), 1u) << "the one that is for all is left";
}

}  // namespace
}  // namespace tessera::mover
