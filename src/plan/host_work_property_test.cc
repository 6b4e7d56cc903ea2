// Programs that work on host memory are told of once, after the time that was set, and again when that is over.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "sched/residency/host_work.h"

namespace tessera::sched {
namespace {

using News = HostWork::News;
constexpr std::uint64_t kGiB = 1u << 30;
constexpr Nanos kLongest = 60 * kSecond;
constexpr HostUse kOnHost = {.runs = true, .out = 4 * kGiB, .used = 20 * kGiB, .used_out = 3 * kGiB};
constexpr HostUse kBack = {.runs = true, .out = 4 * kGiB, .used = 20 * kGiB};
constexpr HostUse kStopped = {.runs = false, .out = 4 * kGiB, .used = 20 * kGiB, .used_out = 3 * kGiB};
constexpr HostUse kAllIn = {};

TEST(HostWork, ATwentiethOfWhatItUsesIsMuch) {
  EXPECT_FALSE(HostWork::IsMuch({.used = 20 * kGiB, .used_out = kGiB - 1}));
  EXPECT_TRUE(HostWork::IsMuch({.used = 20 * kGiB, .used_out = kGiB}));
  EXPECT_FALSE(HostWork::IsMuch({.used = 0, .used_out = 0}));
}

TEST(HostWork, ItIsToldOnceAfterAMinuteAndWhenItIsOver) {
  HostWork work;
  Nanos now = 1000 * kSecond;
  for (int i = 0; i < 60; ++i, now += kSecond) ASSERT_EQ(work.Note(kOnHost, kLongest, now), News::kNone) << i;
  EXPECT_EQ(work.ToldFor(now), std::nullopt);
  EXPECT_EQ(work.Note(kOnHost, kLongest, now), News::kBegan);
  EXPECT_EQ(work.ToldFor(now + kSecond), 61 * kSecond);
  EXPECT_EQ(work.Since(), 1000 * kSecond);
  EXPECT_EQ(work.Note(kOnHost, kLongest, now += 100 * kSecond), News::kNone) << "once";
  EXPECT_EQ(work.Note(kBack, kLongest, now += kSecond), News::kNone) << "perhaps for a moment";
  EXPECT_EQ(work.Note(kBack, kLongest, now += kLongest / HostWork::kBackPart), News::kEnded);
  EXPECT_EQ(work.ToldFor(now), std::nullopt);
  EXPECT_EQ(work.TimeAt(now), 161 * kSecond);
  for (int i = 0; i < 60; ++i, now += kSecond) ASSERT_EQ(work.Note(kOnHost, kLongest, now), News::kNone) << i;
  EXPECT_EQ(work.Note(kOnHost, kLongest, now), News::kBegan) << "another time";
}

TEST(HostWork, TimeInWhichItStandsStillDoesNotCount) {
  HostWork work;
  Nanos now = 0;
  for (int i = 0; i < 59; ++i) {
    EXPECT_EQ(work.Note(kOnHost, kLongest, now), News::kNone);
    EXPECT_EQ(work.Note(kStopped, kLongest, now += kSecond), News::kNone);
    now += 100 * kSecond;
  }
  EXPECT_EQ(work.Note(kOnHost, kLongest, now), News::kNone);
  EXPECT_EQ(work.Note(kStopped, kLongest, now + kSecond), News::kBegan);
}

TEST(HostWork, WhereNothingIsOutItIsOverThoughTheProgramRests) {
  HostWork work;
  work.Note(kOnHost, kLongest, 0);
  EXPECT_EQ(work.Note(kStopped, kLongest, kLongest), News::kBegan);
  EXPECT_EQ(work.Note(kAllIn, kLongest, kLongest + kSecond), News::kNone);
  EXPECT_EQ(work.Note(kAllIn, kLongest, 2 * kLongest), News::kEnded);
}

TEST(HostWork, WithZeroNothingIsTold) {
  HostWork work;
  for (Nanos now = 0; now < 1000 * kSecond; now += kSecond) ASSERT_EQ(work.Note(kOnHost, 0, now), News::kNone);
  EXPECT_EQ(work.TimeAt(1000 * kSecond), 1000 * kSecond);
}

RC_GTEST_PROP(HostWork, WhateverHappensNewsAlternateAndNoMinuteGoesUnnoticed, ()) {
  HostWork work;
  bool told = false;
  Nanos now = 0, on = 0, total = 0, off = 0;  // on: since it was last off for long enough
  HostUse before = kAllIn;
  for (const auto& [kind, length] : *rc::gen::container<std::vector<std::pair<int, int>>>(
           rc::gen::pair(rc::gen::inRange(0, 4), rc::gen::inRange(1, 40)))) {
    const Nanos span = length * kSecond / 2;
    const HostUse use = kind == 0 ? kBack : kind == 1 ? kStopped : kOnHost;
    now += span;
    const bool was_on = before.runs && HostWork::IsMuch(before);
    if (was_on) {
      on += span;
      total += span;
      off = 0;
    } else if (before.runs || before.out == 0) {
      off += span;
    }
    const News news = work.Note(use, kLongest, now);
    RC_ASSERT(work.TimeAt(now) == total);
    if (news == News::kBegan) {
      RC_ASSERT(!told);
      RC_ASSERT(on >= kLongest);
      told = true;
    } else if (news == News::kEnded) {
      RC_ASSERT(told);
      RC_ASSERT(off >= kLongest / HostWork::kBackPart);
      told = false;
    }
    if (off >= kLongest / HostWork::kBackPart && !(use.runs && HostWork::IsMuch(use))) on = 0;
    RC_ASSERT(told || on < kLongest);
    RC_ASSERT(work.ToldFor(now).has_value() == told);
    before = use;
  }
}

}  // namespace
}  // namespace tessera::sched
