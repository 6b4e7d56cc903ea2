#include "mover/pool/slot_claims.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "mover/testing/test_pool.h"

namespace tessera::mover {
namespace {

// Slots of an earlier mover.
class EarlierPool : public testing::Test {
 protected:
  EarlierPool() {
    TestPool pool = Open();
    pool.growth.Aim(5, 5);
    pool.Obey();
    for (int i = 0; i < 5; ++i) numbers_.push_back(pool.slots.EntryOf(static_cast<Slot>(i)).memory);
    pool.slots.Give(1, 10, getpid());  // stored, and still there
    key_ = pool.slots.EntryOf(1).key;
    pool.slots.Give(2, 10, getpid());  // came back
    pool.slots.GiveBack(2);
    pool.slots.Give(3, 10, getpid());  // as the first
  }
  TestPool Open() { return TestPool(UniqueFd(dup(file_.Get()))); }
  // A mover that the daemon gave the first four of them.
  std::unique_ptr<TestPool> Next() {
    auto next = std::make_unique<TestPool>(UniqueFd(dup(file_.Get())));
    TestPool& pool = *next;
    for (int i = 0; i < 4; ++i) {
      const auto slot = pool.slots.Earlier(numbers_[static_cast<std::size_t>(i)]);
      EXPECT_EQ(slot, static_cast<Slot>(i));
      if (slot) pool.slots.Restore(*slot, {});
    }
    return next;
  }

  UniqueFd file_ = TableFile(5);
  std::vector<std::uint64_t> numbers_;
  std::uint64_t key_ = 0;
};

TEST_F(EarlierPool, AreWhatTheyWere) {
  const auto next = Next();
  TestPool& pool = *next;
  EXPECT_EQ(pool.slots.Count().total, 4u);
  EXPECT_EQ(pool.slots.Count().used, 2u);
  EXPECT_TRUE(pool.claims.any());
  EXPECT_EQ(pool.slots.FreeFor(10), 2u);
  EXPECT_EQ(pool.slots.FreeFor(20), 1u) << "the one that nobody was given";
  EXPECT_EQ(pool.growth.Next({}).kind, PoolGrowth::Job::Kind::kNothing) << "nobody has said how many there are to be";
  EXPECT_FALSE(pool.slots.Earlier(0));
  EXPECT_FALSE(pool.slots.Earlier(numbers_[0])) << "twice";
}

TEST_F(EarlierPool, AreClaimedByTheirKeyInTheirDomainAndOnce) {
  const auto next = Next();
  TestPool& pool = *next;
  EXPECT_FALSE(pool.claims.Claim(key_, 20, getpid()));
  EXPECT_FALSE(pool.claims.Claim(key_ + 1, 10, getpid()));
  EXPECT_FALSE(pool.claims.Claim(0, 10, getpid()));
  EXPECT_EQ(pool.claims.Claim(key_, 10, getpid()), 1u);
  EXPECT_FALSE(pool.claims.Claim(key_, 10, getpid()));
  EXPECT_EQ(pool.slots.Count().used, 2u);
  pool.slots.GiveBack(1);
  EXPECT_EQ(pool.slots.FreeFor(10), 3u);
  EXPECT_EQ(pool.slots.FreeFor(20), 1u);
  pool.slots.Give(1, 10, getpid());
  EXPECT_NE(pool.slots.EntryOf(1).key, key_) << "something else is in it";
}

TEST_F(EarlierPool, AreGivenUpIfNobodyClaimsThemInTime) {
  const auto next = Next();
  TestPool& pool = *next;
  pool.claims.Sweep(1000);
  pool.claims.Bound(50);
  pool.claims.Sweep(49);
  EXPECT_EQ(pool.slots.Count().used, 2u);
  EXPECT_EQ(pool.claims.Claim(key_, 10, getpid()), 1u);
  pool.claims.Sweep(50);
  EXPECT_EQ(pool.slots.Count().used, 1u);
  pool.growth.Aim(4, 4);
  EXPECT_EQ(pool.Obey(), (TestPool::Work{.made = 1, .freed = 1})) << "their program may write to them still";
}

// Their program may be stopped for long, and they are all that it has.
TEST_F(EarlierPool, AreClaimedAtAnyTimeWhereTheyAreParked) {
  {
    TestPool pool = Open();
    pool.slots.Park(1, true);
  }
  auto next = Next();
  next->claims.Bound(50);
  next->claims.Sweep(50);
  EXPECT_EQ(next->slots.Count().used, 1u);
  EXPECT_EQ(next->claims.Claim(key_, 10, getpid()), 1u);
  next->slots.GiveBack(1);
  EXPECT_FALSE(next->slots.EntryOf(1).Has(wire::SwapEntry::kParked)) << "what lies there next";
  const Slot again = *next->slots.Take(10);
  next->slots.Give(again, 10, getpid());
  next->claims.Leave(again, 50);
  next->claims.Sweep(50);
  EXPECT_EQ(next->slots.Count().used, 0u);
}

TEST_F(EarlierPool, AreGivenUpWhenTheirProgramHasClaimedTheOthers) {
  const auto next = Next();
  TestPool& pool = *next;
  EXPECT_EQ(pool.claims.Claim(key_, 10, getpid()), 1u);
  pool.claims.Abandon(getpid());
  EXPECT_FALSE(pool.claims.any());
  EXPECT_EQ(pool.slots.Count().used, 1u);
}

TEST_F(EarlierPool, AreFreeForTheirDomainWhenTheirProgramHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  {
    const auto next = Next();
    TestPool& pool = *next;
    EXPECT_EQ(pool.claims.Claim(key_, 10, child), 1u);
  }
  const auto next = Next();
  TestPool& pool = *next;
  pool.claims.Sweep(0);
  EXPECT_EQ(pool.slots.FreeFor(10), 3u);
  EXPECT_EQ(pool.slots.FreeFor(20), 1u);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// The kernel shows a process whose first thread has ended as one that has ended.
TEST_F(EarlierPool, AreNotFreeWhileAnyThreadOfTheirProgramLives) {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);
  }
  const auto state = [&] {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string word;
    for (int i = 0; i < 3; ++i) stat >> word;
    return word;
  };
  while (state() != "Z") std::this_thread::yield();
  const auto next = Next();
  TestPool& pool = *next;
  EXPECT_EQ(pool.claims.Claim(key_, 10, child), 1u);
  pool.claims.Leave(1, kNever);
  pool.claims.Sweep(0);
  EXPECT_EQ(pool.slots.Count().used, 2u);
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  pool.claims.Sweep(0);
  EXPECT_EQ(pool.slots.Count().used, 1u);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(EarlierPool, AreForgottenWhenTheirPlaceHasOtherMemory) {
  {
    TestPool pool = Open();  // which was given none of them
    pool.growth.Aim(5, 5);
    pool.Obey();
    EXPECT_EQ(pool.slots.FreeFor(20), 5u);
  }
  TestPool pool = Open();
  for (const std::uint64_t number : numbers_) EXPECT_FALSE(pool.slots.Earlier(number));
}

}  // namespace
}  // namespace tessera::mover
