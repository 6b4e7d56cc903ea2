#include "server/model/move_account.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using sched::Moving;

// Without holes: what was copied is the room that came free, or was taken.
Moves Moved(MoveAccount& account, std::uint64_t out, std::uint64_t in) {
  return account.NoteMoved({.out = out, .in = in}, {.out = out, .in = in});
}

TEST(MoveAccount, AnOrderEndsWhenAllOfItIsReported) {
  MoveAccount account;
  account.Order(Moving::kOut, 8, 100);
  account.Order(Moving::kOut, 4, 120);
  EXPECT_EQ(account.Ordered(), 12u);
  EXPECT_EQ(account.OrderedAt(), 100);
  EXPECT_EQ(Moved(account, 8, 0).out, 8u);
  EXPECT_FALSE(account.NoteEnd(0, 150)) << "of the first part: more was ordered";
  EXPECT_EQ(Moved(account, 11, 0).out, 3u) << "the mover counts from the beginning";
  EXPECT_TRUE(account.NoteEnd(1, 160)) << "one byte could not be moved";
  EXPECT_EQ(account.Doing(), Moving::kNothing);
  const Moves sum = account.SumAt(200);
  EXPECT_EQ(sum.out, 11u);
  EXPECT_EQ(sum.time, 60);
}

TEST(MoveAccount, AMoveThatIsUnderWayCountsInTheTime) {
  MoveAccount account;
  account.Order(Moving::kIn, 8, 100);
  EXPECT_EQ(account.SumAt(130).time, 30);
}

TEST(MoveAccount, AProgramHasNoMoreInHostMemoryThanWasBroughtOut) {
  MoveAccount account;
  wire::Page page;
  page.swapped = 100;
  EXPECT_EQ(account.Swapped(page), 0u);
  account.Order(Moving::kOut, 8, 0);
  EXPECT_EQ(account.Swapped(page), 8u) << "it may be done, and not reported";
  Moved(account, 8, 0);
  account.NoteEnd(0, 1);
  account.Order(Moving::kIn, 8, 2);
  Moved(account, 8, 6);
  EXPECT_EQ(account.Swapped(page), 2u);
  account.Bring(50);
  EXPECT_EQ(account.Swapped(page), 52u) << "with what it had under an earlier daemon";
}

TEST(MoveAccount, AMoveThatIsDoneAndNotReportedIsSeenInThePage) {
  MoveAccount account;
  wire::Page page;
  account.Order(Moving::kOut, 8, 0);
  page.moved_out = 3;
  EXPECT_EQ(account.Unreported(page), 3u);
  page.moved_out = 100;
  EXPECT_EQ(account.Unreported(page), 8u) << "no more than was ordered";
  Moved(account, 8, 0);
  account.NoteEnd(0, 1);
  EXPECT_EQ(account.Unreported(page), 0u);
}

TEST(MoveAccount, WhatALostMoverDidIsFoundOnce) {
  MoveAccount account;
  wire::Page page;
  account.Order(Moving::kOut, 8, 0);
  Moved(account, 2, 0);
  page.moved_out = 5;  // three more, of which nobody told
  account.Abandon();
  EXPECT_EQ(account.Doing(), Moving::kNothing);
  EXPECT_EQ(account.FindLost(page).out, 3u);
  EXPECT_EQ(account.FindLost(page).out, 0u);
  EXPECT_EQ(Moved(account, 1, 0).out, 1u) << "the next mover counts from nothing";
}

TEST(MoveAccount, TheTraceIsToldOfEachByteOnce) {
  MoveAccount account;
  account.Order(Moving::kIn, 8, 0);
  Moved(account, 0, 8);
  EXPECT_EQ(account.TakeUntraced(Moving::kIn), 8u);
  EXPECT_EQ(account.TakeUntraced(Moving::kIn), 0u);
  EXPECT_EQ(account.TakeUntraced(Moving::kOut), 0u);
}

TEST(MoveAccount, WhatComesBackWithRoomForHolesIsNotAllThatWentOut) {
  MoveAccount account;
  wire::Page page{};
  for (int trip = 0; trip < 3; ++trip) {
    page.swapped = 40;
    account.Order(Moving::kOut, 40, 100);
    account.NoteMoved({.out = 40 + 40u * trip, .in = 64u * trip}, {.out = 40 + 40u * trip, .in = 40u * trip});
    account.NoteEnd(0, 110);
    EXPECT_EQ(account.Swapped(page), 40u) << trip;
    account.Order(Moving::kIn, 64, 120);
    account.NoteMoved({.out = 40 + 40u * trip, .in = 64 + 64u * trip}, {.out = 40 + 40u * trip, .in = 40 + 40u * trip});
    account.NoteEnd(0, 130);
    EXPECT_EQ(account.Swapped(page), 0u) << trip << ": nothing is believed to be out";
  }
}

}  // namespace
}  // namespace tessera::server
