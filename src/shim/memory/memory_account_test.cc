#include "shim/memory/memory_account.h"

#include <thread>

#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

class MemoryAccountTest : public ShimFixture {
 protected:
  MemoryAccountTest() : ShimFixture(false) {
    shared.memory_max = 8 * kGiB;
    const MutexLock lock(page.holding);
    page.Follow(&shared, gpu);
  }
  std::uint64_t Held() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    return account.Held();
  }
  std::uint32_t Contexts() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    return account.Contexts();
  }
  void FollowDaemonWith(std::uint64_t context_bytes) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    account.Attached(context_bytes);
  }

  void ReportToAnotherDaemon() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    account.Report();
  }

  wire::Page shared;
  FollowedPage page;
  MemoryAccount account{page};
};

TEST_F(MemoryAccountTest, CreditIsTakenWithoutAWord) {
  shared.memory_credit = 3 * kMiB;
  EXPECT_TRUE(account.Take(2 * kMiB));
  EXPECT_EQ(shared.memory_credit, std::int64_t{kMiB});
  EXPECT_EQ(Held(), 2 * kMiB);
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Reserve>(gpu), 0u);
}

TEST_F(MemoryAccountTest, BeyondTheCreditTheDaemonIsAsked) {
  shared.memory_credit = kMiB;
  EXPECT_TRUE(account.Take(2 * kMiB));
  EXPECT_EQ(Daemon().Await<wire::Reserve>(gpu).bytes, 2 * kMiB);
  EXPECT_EQ(shared.memory_credit, std::int64_t{kMiB}) << "the answer is for all of it";
  EXPECT_EQ(Held(), 2 * kMiB);
}

TEST_F(MemoryAccountTest, ALimitIsAnError) {
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.reserve = [](std::uint64_t) { return wire::Reserved{}; }; });
  EXPECT_FALSE(account.Take(2 * kMiB));
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(shared.oom_errors, 1u);
}

TEST_F(MemoryAccountTest, CreditThatTheDaemonTookBackBelowNothingIsNone) {
  shared.memory_credit = -1;
  EXPECT_TRUE(account.Take(1));
  EXPECT_EQ(Daemon().Count<wire::Reserve>(gpu), 1u);
}

TEST_F(MemoryAccountTest, BlankHostMemoryIsInThePageBeforeItIsAskedFor) {
  std::uint64_t seen = 0;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.blank = [&](std::uint64_t bytes) {
      seen = shared.blank_planned;
      return wire::Reserved{.bytes = bytes <= 100 * kMiB ? bytes : 0};
    };
  });
  EXPECT_TRUE(account.TakeBlank(62 * kMiB));
  EXPECT_EQ(seen, 62 * kMiB);
  EXPECT_FALSE(account.TakeBlank(124 * kMiB));
  EXPECT_EQ(seen, 186 * kMiB);
  EXPECT_EQ(shared.blank_planned, 62 * kMiB);
  shared.blank_planned = 0;
  ReportToAnotherDaemon();
  EXPECT_EQ(shared.blank_planned, 62 * kMiB) << "another daemon's page says it, too";
  account.DropBlank(62 * kMiB);
  EXPECT_EQ(shared.blank_planned, 0u);
}

TEST_F(MemoryAccountTest, WhatAnotherProgramPlansIsAskedAboutOnceMore) {
  std::uint64_t asked = 0, fits = 2;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.blank = [&](std::uint64_t bytes) {
      EXPECT_EQ(shared.blank_planned, 62 * kMiB);
      return ++asked == fits ? wire::Reserved{.bytes = bytes} : wire::Reserved{.wait = 1};
    };
  });
  EXPECT_TRUE(account.TakeBlank(62 * kMiB));
  EXPECT_EQ(asked, 2u);
  account.DropBlank(62 * kMiB);
  asked = fits = 0;
  EXPECT_FALSE(account.TakeBlank(62 * kMiB));
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(shared.blank_planned, 0u);
}

TEST_F(MemoryAccountTest, WhatIsFreedIsKeptAsCreditOnceAndTheRestReturned) {
  shared.memory_credit_keep = 4 * kMiB;
  ASSERT_TRUE(account.Take(10 * kMiB));
  account.Give(3 * kMiB);
  EXPECT_EQ(shared.memory_credit, 3 * std::int64_t{kMiB});
  account.Give(7 * kMiB);
  EXPECT_EQ(Daemon().Await<wire::Return>(gpu).bytes, 6 * kMiB);
  EXPECT_EQ(shared.memory_credit, 4 * std::int64_t{kMiB});
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(account.Returned(), 6 * kMiB);
}

TEST_F(MemoryAccountTest, MemoryOnItsWayBackIsFreeAlready) {
  shared.memory_available = kGiB;
  ASSERT_TRUE(account.Take(10 * kMiB));
  account.Give(10 * kMiB);
  Daemon().Await<wire::Return>(gpu);
  EXPECT_EQ(account.Free(), kGiB + 10 * kMiB);
  shared.memory_available += 10 * kMiB;  // the daemon has it
  shared.memory_returned += 10 * kMiB;
  EXPECT_EQ(account.Free(), kGiB + 10 * kMiB);
  shared.memory_available = 100 * kGiB;
  EXPECT_EQ(account.Free(), account.Max());
}

TEST_F(MemoryAccountTest, CreditIsFree) {
  shared.memory_available = kGiB;
  shared.memory_credit = kMiB;
  EXPECT_EQ(account.Free(), kGiB + kMiB);
  shared.memory_credit = -5;
  EXPECT_EQ(account.Free(), kGiB);
}

TEST_F(MemoryAccountTest, ContextsAreAskedFor) {
  FollowDaemonWith(kMiB);
  EXPECT_EQ(account.AddContext(), MemoryAccount::Answer::kYes);
  EXPECT_EQ(Daemon().Await<wire::Context>(gpu).delta, 1);
  EXPECT_EQ(Contexts(), 1u);
  account.DropContext();
  EXPECT_EQ(Daemon().Await<wire::Context>(gpu, 2).delta, -1);
  EXPECT_EQ(Contexts(), 0u);
}

TEST_F(MemoryAccountTest, AContextBeyondTheLimitIsRefused) {
  FollowDaemonWith(kMiB);
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.context = [](std::uint32_t) { return wire::Reserved{}; }; });
  EXPECT_EQ(account.AddContext(), MemoryAccount::Answer::kNo);
  EXPECT_EQ(Contexts(), 0u);
  EXPECT_EQ(shared.oom_errors, 1u);
  FollowDaemonWith(0);
  EXPECT_EQ(account.AddContext(), MemoryAccount::Answer::kYes)
      << "where contexts cost nothing the answer is 0 bytes, too";
}

TEST_F(MemoryAccountTest, ANewDaemonHasBeenReturnedNothing) {
  ASSERT_TRUE(account.Take(kMiB));
  account.Give(kMiB);
  Daemon().Await<wire::Return>(gpu);
  FollowDaemonWith(0);
  EXPECT_EQ(account.Returned(), 0u);
}

TEST_F(MemoryAccountTest, ThreadsThatTakeAndGiveLeaveNothingBehind) {
  shared.memory_credit = 64 * kMiB;
  shared.memory_credit_keep = 64 * kMiB;
  const auto churn = [this] {
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(account.Take(kMiB));
      account.Give(kMiB);
    }
  };
  std::thread one(churn), two(churn);
  one.join();
  two.join();
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(shared.memory_credit, 64 * std::int64_t{kMiB});
}

TEST_F(MemoryAccountTest, WithoutADaemonWhatItSaidWasFreeIsToBeHad) {
  EndDaemon();
  shared.memory_available = 10 * kMiB;
  EXPECT_TRUE(account.Take(8 * kMiB));
  EXPECT_FALSE(account.Take(4 * kMiB));
  EXPECT_EQ(shared.memory_available, 2 * kMiB);
  account.Give(8 * kMiB);
  EXPECT_EQ(shared.memory_credit, 8 * std::int64_t{kMiB}) << "no daemon took it";
  EXPECT_EQ(account.Returned(), 0u);
  EXPECT_TRUE(account.Take(8 * kMiB));
  StartDaemon();
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
}

}  // namespace
}  // namespace tessera::shim
