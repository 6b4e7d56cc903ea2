#include "sched/idle/idle_program.h"

#include <gtest/gtest.h>

namespace tessera::sched {
namespace {

using enum IdleVerdict;

constexpr Nanos kLimit = 10 * kSecond;

// A program that was idle from the beginning, and was looked at then.
class IdleProgramTest : public testing::Test {
 protected:
  IdleVerdict Look(Nanos at, Nanos limit = kLimit) { return Judge(record_, facts_, limit, at); }
  void SetUp() override { ASSERT_EQ(Look(0), kNothing); }
  // It was idle for long enough at `at`, and is away.
  void Leave(Nanos at = kLimit) {
    ASSERT_EQ(Look(at), kSuspend);
    facts_.away = facts_.by_itself = true;
    ASSERT_EQ(Look(at), kNothing);
  }
  // It calls, and is back.
  void ComeBack(Nanos at) {
    facts_.calls = true;
    ASSERT_EQ(Look(at), kResume);
    Back();
    ASSERT_EQ(Look(at), kNothing);
  }
  void Back() { facts_.away = facts_.by_itself = facts_.returns = facts_.calls = false; }

  IdleFacts facts_{.idle = true, .done = 5, .used = 100};
  IdleRecord record_;
};

TEST_F(IdleProgramTest, WhoIsIdleForLongEnoughIsSuspended) {
  EXPECT_EQ(Look(kLimit - 1), kNothing);
  EXPECT_EQ(Look(kLimit, 0), kNothing) << "nobody is";
  EXPECT_EQ(Look(kLimit), kSuspend);
}

TEST_F(IdleProgramTest, WhateverItDoesBeginsTheTimeAnew) {
  Nanos now = 0;
  const auto begins_anew = [&](const char* what) {
    now += kLimit - 1;
    EXPECT_EQ(Look(now), kNothing) << what;
    EXPECT_EQ(Look(now + kLimit - 1), kNothing) << what;
    now += kLimit - 1;
  };
  ++facts_.done;
  begins_anew("worked between two looks");
  facts_.used -= 50;
  begins_anew("freed memory");
  facts_.idle = false;
  EXPECT_EQ(Look(now + 1000 * kSecond), kNothing);
  facts_.idle = true;
  now += 1000 * kSecond;
  begins_anew("was at work");
  EXPECT_EQ(Look(now + 1), kSuspend);
}

TEST_F(IdleProgramTest, ItsFirstCallBringsItBack) {
  Leave();
  EXPECT_EQ(Look(1000 * kSecond), kNothing);
  facts_.calls = true;
  EXPECT_EQ(Look(1000 * kSecond), kResume);
  facts_.returns = true;
  EXPECT_EQ(Look(1001 * kSecond), kNothing) << "once";
}

TEST_F(IdleProgramTest, AlsoWhereNobodyIsToBeSuspendedAnyMore) {
  Leave();
  facts_.calls = true;
  EXPECT_EQ(Look(20 * kSecond, 0), kResume);
}

TEST_F(IdleProgramTest, ACallThatLeavesNoTraceBeginsTheTimeAnewToo) {
  Leave();
  ComeBack(100 * kSecond);
  EXPECT_EQ(Look(110 * kSecond - 1), kNothing);
  EXPECT_EQ(Look(110 * kSecond), kSuspend);
}

TEST_F(IdleProgramTest, WhoCallsSoonAfterItLeftHasToBeIdleForLonger) {
  Nanos now = kLimit;
  for (const int times : {2, 4, 8, 16, 32, 64, 64}) {
    Leave(now);
    ComeBack(++now);
    EXPECT_EQ(Look(now + times * kLimit - 1), kNothing);
    now += times * kLimit;
  }
  Leave(now);
  now += kLimit;
  ComeBack(now);  // it was worth while
  EXPECT_EQ(Look(now + kLimit), kSuspend);
}

TEST_F(IdleProgramTest, WhatAnOperatorSuspendedStays) {
  Leave();
  facts_.by_itself = false;
  facts_.calls = true;
  EXPECT_EQ(Look(1000 * kSecond), kNothing);
}

TEST_F(IdleProgramTest, WhatFailedOrWasEndedIsNotRepeatedBeforeItHasWorked) {
  Leave();
  Back();
  EXPECT_EQ(Look(100 * kSecond), kNothing);
  EXPECT_EQ(Look(1000 * kSecond), kNothing);
  ++facts_.done;
  EXPECT_EQ(Look(1001 * kSecond), kNothing);
  EXPECT_EQ(Look(1011 * kSecond), kSuspend);
}

TEST_F(IdleProgramTest, ARefusalIsAskedForAgainWhenItWasIdleForAsLong) {
  ASSERT_EQ(Look(kLimit), kSuspend);
  NoteRefusal(record_, kLimit);
  EXPECT_EQ(Look(2 * kLimit - 1), kNothing);
  EXPECT_EQ(Look(2 * kLimit), kSuspend);
}

TEST_F(IdleProgramTest, WhatCannotComeBackIsTriedAgainLessAndLessOften) {
  Leave();
  facts_.calls = true;
  Nanos now = 20 * kSecond;
  for (const int pause : {1, 2, 4, 8, 16, 16}) {
    EXPECT_EQ(Look(now), kResume);
    EXPECT_EQ(Look(now + pause * kSecond - 1), kNothing);
    now += pause * kSecond;
  }
}

TEST_F(IdleProgramTest, AProgramThatMovesIsLeftAlone) {
  facts_.moves = true;
  EXPECT_EQ(Look(kLimit), kNothing);
  facts_.moves = false;
  Leave();
  facts_.moves = facts_.calls = true;
  EXPECT_EQ(Look(20 * kSecond), kNothing);
  facts_.moves = false;
  EXPECT_EQ(Look(20 * kSecond), kResume);
}

TEST(IdleProgram, WhatAnEarlierDaemonSuspendedComesBackWithItsFirstCall) {
  IdleRecord record;
  IdleFacts facts{.away = true, .by_itself = true, .idle = true, .done = 7, .used = 100};
  EXPECT_EQ(Judge(record, facts, 0, 0), kNothing);
  facts.calls = true;
  EXPECT_EQ(Judge(record, facts, 0, 0), kResume);
}

}  // namespace
}  // namespace tessera::sched
