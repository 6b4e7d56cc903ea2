#include "mover/pool/pool.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::mover
