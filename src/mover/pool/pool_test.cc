#include "mover/pool/pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace tessera::mover {
namespace {

using Kind = Pool::Job::Kind;

UniqueFd TableFile(std::uint64_t entries) {
  UniqueFd file(memfd_create("table", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.Get(), static_cast<off_t>(entries * wire::kTableEntryBytes)), 0);
  return file;
}
KeyTable Table(std::uint64_t entries) { return std::move(*KeyTable::Open(TableFile(entries))); }

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
  Pool pool(Table(32));
  EXPECT_EQ(Obey(pool), (Work{}));
  pool.Aim(5, 10);
  EXPECT_EQ(Obey(pool), (Work{.made = 5}));
  pool.Aim(20, 7);
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  pool.Aim(3, 10);
  EXPECT_EQ(Obey(pool), (Work{.freed = 4}));
}

TEST(Pool, GrowsOnDemandUpToTheMost) {
  Pool pool(Table(32));
  pool.Aim(2, 6);
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  EXPECT_EQ(Obey(pool, {{1, 4}}), (Work{.made = 2}));
  EXPECT_EQ(Obey(pool, {{1, 3}, {2, 9}}), (Work{.made = 2}));
  EXPECT_EQ(pool.FreeFor(1), 6u);
  EXPECT_EQ(Obey(pool), (Work{.freed = 4}));
}

TEST(Pool, KeepsWhatIsInUse) {
  Pool pool(Table(32));
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
  Pool pool(Table(32));
  pool.Aim(2, 2);
  Obey(pool);
  const Slot given = *pool.Take(1), kept = *pool.Take(1);
  pool.Give(given, 1, getpid());
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
  Pool pool(Table(32));
  pool.Aim(4, 4);
  Obey(pool);
  for (int i = 0; i < 4; ++i) pool.Give(*pool.Take(1), 1, getpid());
  for (Slot slot = 0; slot < 4; ++slot) pool.GiveBack(slot);
  EXPECT_EQ(Obey(pool, {{2, 3}}), (Work{.made = 3, .freed = 3}));
  EXPECT_EQ(pool.FreeFor(2), 3u);
  EXPECT_EQ(pool.FreeFor(1), 4u);
}

TEST(Pool, LeavesADomainWhatItWantsItself) {
  Pool pool(Table(32));
  pool.Aim(2, 2);
  Obey(pool);
  std::vector<Slot> slots = {*pool.Take(1), *pool.Take(1)};
  for (const Slot slot : slots) pool.Give(slot, 1, getpid());
  for (const Slot slot : slots) pool.GiveBack(slot);
  EXPECT_EQ(Obey(pool, {{1, 2}, {2, 2}}), (Work{}));
}

TEST(Pool, StopsWithoutMemoryAndGoesOnWhenSomeIsFreed) {
  Pool pool(Table(32));
  pool.Aim(2, 4);
  EXPECT_EQ(pool.Next({}).kind, Kind::kMake);
  pool.Stop();
  EXPECT_EQ(pool.Next({{1, 1}}).kind, Kind::kNothing);
  pool.Resume();
  EXPECT_EQ(Obey(pool), (Work{.made = 2}));
  const Slot slot = *pool.Take(1);
  pool.Give(slot, 1, getpid());
  pool.GiveUp(slot);
  pool.Stop();
  EXPECT_EQ(pool.used(), 0u);
  EXPECT_EQ(Obey(pool), (Work{.made = 1, .freed = 1}));
}

TEST(Pool, HasNoMoreSlotsThanItsTableHasEntries) {
  Pool pool(Table(3));
  pool.Aim(5, 10);
  EXPECT_EQ(Obey(pool, {{1, 9}}), (Work{.made = 3}));
  EXPECT_EQ(pool.most(), 3u);
}

// ---- slots of an earlier mover ----

class EarlierPool : public testing::Test {
 protected:
  EarlierPool() {
    Pool pool = Open();
    pool.Aim(5, 5);
    Obey(pool);
    for (int i = 0; i < 5; ++i) numbers_.push_back(pool.NumberOf(static_cast<Slot>(i)));
    pool.Give(1, 10, getpid());  // stored, and still there
    key_ = pool.KeyOf(1);
    pool.Give(2, 10, getpid());  // came back
    pool.GiveBack(2);
    pool.Give(3, 10, getpid());  // as the first
  }
  Pool Open() { return Pool(std::move(*KeyTable::Open(UniqueFd(dup(file_.Get()))))); }
  // A mover that the daemon gave the first four of them.
  Pool Next() {
    Pool pool = Open();
    for (int i = 0; i < 4; ++i) {
      const auto slot = pool.Earlier(numbers_[static_cast<std::size_t>(i)]);
      EXPECT_EQ(slot, static_cast<Slot>(i));
      if (slot) pool.Restore(*slot, {});
    }
    return pool;
  }

  UniqueFd file_ = TableFile(5);
  std::vector<std::uint64_t> numbers_;
  std::uint64_t key_ = 0;
};

TEST_F(EarlierPool, AreWhatTheyWere) {
  Pool pool = Next();
  EXPECT_EQ(pool.total(), 4u);
  EXPECT_EQ(pool.used(), 2u);
  EXPECT_EQ(pool.left(), 2u);
  EXPECT_EQ(pool.FreeFor(10), 2u);
  EXPECT_EQ(pool.FreeFor(20), 1u) << "the one that nobody was given";
  EXPECT_EQ(pool.Next({}).kind, Kind::kNothing) << "nobody has said how many there are to be";
  EXPECT_FALSE(pool.Earlier(0));
  EXPECT_FALSE(pool.Earlier(numbers_[0])) << "twice";
}

TEST_F(EarlierPool, AreClaimedByTheirKeyInTheirDomainAndOnce) {
  Pool pool = Next();
  EXPECT_FALSE(pool.Claim(key_, 20, getpid()));
  EXPECT_FALSE(pool.Claim(key_ + 1, 10, getpid()));
  EXPECT_FALSE(pool.Claim(0, 10, getpid()));
  EXPECT_EQ(pool.Claim(key_, 10, getpid()), 1u);
  EXPECT_FALSE(pool.Claim(key_, 10, getpid()));
  EXPECT_EQ(pool.used(), 2u);
  pool.GiveBack(1);
  EXPECT_EQ(pool.FreeFor(10), 3u);
  EXPECT_EQ(pool.FreeFor(20), 1u);
  pool.Give(1, 10, getpid());
  EXPECT_NE(pool.KeyOf(1), key_) << "something else is in it";
}

TEST_F(EarlierPool, AreGivenUpIfNobodyClaimsThemInTime) {
  Pool pool = Next();
  EXPECT_FALSE(pool.Sweep(1000));
  pool.Bound(50);
  EXPECT_FALSE(pool.Sweep(49));
  EXPECT_EQ(pool.Claim(key_, 10, getpid()), 1u);
  EXPECT_TRUE(pool.Sweep(50));
  EXPECT_EQ(pool.used(), 1u);
  pool.Aim(4, 4);
  EXPECT_EQ(Obey(pool), (Work{.made = 1, .freed = 1})) << "their program may write to them still";
}

TEST_F(EarlierPool, AreGivenUpWhenTheirProgramHasClaimedTheOthers) {
  Pool pool = Next();
  EXPECT_EQ(pool.Claim(key_, 10, getpid()), 1u);
  pool.Abandon(getpid());
  EXPECT_EQ(pool.left(), 0u);
  EXPECT_EQ(pool.used(), 1u);
}

TEST_F(EarlierPool, AreFreeForTheirDomainWhenTheirProgramHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  {
    Pool pool = Next();
    EXPECT_EQ(pool.Claim(key_, 10, child), 1u);
  }
  Pool pool = Next();
  EXPECT_TRUE(pool.Sweep(0));
  EXPECT_EQ(pool.FreeFor(10), 3u);
  EXPECT_EQ(pool.FreeFor(20), 1u);
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
  Pool pool = Next();
  EXPECT_EQ(pool.Claim(key_, 10, child), 1u);
  pool.Leave(1, kNever);
  EXPECT_FALSE(pool.Sweep(0));
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  EXPECT_TRUE(pool.Sweep(0));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(EarlierPool, AreForgottenWhenTheirPlaceHasOtherMemory) {
  {
    Pool pool = Open();  // which was given none of them
    pool.Aim(5, 5);
    Obey(pool);
    EXPECT_EQ(pool.FreeFor(20), 5u);
  }
  Pool pool = Open();
  for (const std::uint64_t number : numbers_) EXPECT_FALSE(pool.Earlier(number));
}

}  // namespace
}  // namespace tessera::mover
