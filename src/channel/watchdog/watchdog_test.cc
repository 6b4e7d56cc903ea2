#include "channel/watchdog/watchdog.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <numeric>
#include <optional>
#include <thread>

#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"
#include "channel/control/soft_control.h"
#include "channel/watchdog/move_guard_page.h"
#include "soft/shared/arbiter.h"
#include "soft/shared/test_process.h"

namespace tessera::channel {
namespace {

// Calls that the child's Control got, where the test can see them.
struct Seen {
  struct Thaw {
    std::atomic<pid_t> pid;
    std::atomic<std::uint32_t> gpu, channels, sum_of_handles;
    std::atomic<bool> all;
  };
  std::atomic<int> opened, to_refuse, to_fail, calls, freezes;
  std::atomic<int> thaws;  // of two calls each: RM counts
  Thaw thaw[64];
};

class Recorder : public Control {
 public:
  explicit Recorder(Seen& seen) : seen_(seen) {}
  Result<void> Freeze(std::uint32_t, std::span<const Target>, Reach) override {
    ++seen_.freezes;
    return {};
  }
  Result<void> Thaw(std::uint32_t gpu, std::span<const Target> targets, Reach reach) override {
    if (seen_.to_fail > 0) {
      --seen_.to_fail;
      return Fail(EIO, "not now");
    }
    for (const Target& target : targets) {
      Seen::Thaw& entry = seen_.thaw[seen_.thaws % 64];
      entry.pid = target.pid;
      entry.gpu = gpu;
      entry.channels = entry.sum_of_handles = 0;
      for (const Group& group : target.groups) {
        entry.channels += static_cast<std::uint32_t>(group.channels.size());
        entry.sum_of_handles += std::accumulate(group.channels.begin(), group.channels.end(), group.client);
      }
      entry.all = reach == Reach::kAll;
      if (++seen_.calls % 2 == 0) ++seen_.thaws;
    }
    return {};
  }
  Result<void> SetSlice(std::uint32_t, const Target&, Nanos) override { return Fail(ENOTSUP, "no slices"); }
  Result<Nanos> Slice(std::uint32_t, const Target&) override { return Fail(ENOTSUP, "no slices"); }
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override { return gpu; }
  CallCounts Counts() const override { return {}; }

 private:
  Seen& seen_;
};

Target Process(pid_t pid, std::uint32_t client, std::uint32_t channels) {
  std::vector<std::uint32_t> handles(channels);
  std::iota(handles.begin(), handles.end(), 1);
  return {.pid = pid, .groups = {{.client = client, .handle = 3, .engine = 1, .channels = std::move(handles)}}};
}

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    void* bytes = mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen_ = new (bytes) Seen();
  }
  ~WatchdogTest() override { munmap(seen_, sizeof(Seen)); }

  Watchdog::OpenControl Open() {
    return [seen = seen_]() -> Result<std::unique_ptr<Control>> {
      ++seen->opened;
      if (seen->to_refuse > 0) {
        --seen->to_refuse;
        return Fail(ENODEV, "no GPU yet");
      }
      return std::make_unique<Recorder>(*seen);
    };
  }
  std::unique_ptr<Watchdog> MustStart(Nanos timeout) {
    auto watchdog = Watchdog::Start(Open(), timeout);
    EXPECT_TRUE(watchdog) << watchdog.error().Text();
    return watchdog ? std::move(*watchdog) : nullptr;
  }
  Seen* seen_;
};

constexpr Nanos kShort = 5 * kMillisecond, kLong = 3600 * kSecond;

TEST_F(WatchdogTest, ADaemonThatHangsIsUndoneOnce) {
  const auto watchdog = MustStart(kShort);
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 2, Process(1234, 100, 9)));
  WaitUntil([&] { return seen_->thaws == 1; });
  EXPECT_EQ(seen_->thaw[0].pid, 1234);
  EXPECT_EQ(seen_->thaw[0].gpu, 2u);
  EXPECT_EQ(seen_->thaw[0].channels, 9u);
  EXPECT_EQ(seen_->thaw[0].sum_of_handles, 100u + 45);
  EXPECT_TRUE(seen_->thaw[0].all);
  // It comes back and hangs again.
  EXPECT_TRUE(watchdog->Beat());
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 2, Process(1234, 100, 10)));
  WaitUntil([&] { return seen_->thaws >= 2; });
  EXPECT_TRUE(watchdog->Beat());
  EXPECT_EQ(seen_->thaw[1].channels, 10u);
  EXPECT_EQ(seen_->freezes, 0);
}

TEST_F(WatchdogTest, WhoIsFrozenAnewRightBeforeTheDaemonsEndIsThawedAnew) {
  auto watchdog = MustStart(40 * kShort);
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 2, Process(1234, 100, 9)));
  WaitUntil([&] { return seen_->thaws == 1; });
  EXPECT_FALSE(watchdog->Undid(1, 2));
  EXPECT_TRUE(watchdog->Beat());
  EXPECT_TRUE(watchdog->Undid(1234, 2));
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 2, Process(1234, 100, 9)));
  EXPECT_FALSE(watchdog->Undid(1234, 2));
  watchdog.reset();
  EXPECT_EQ(seen_->thaws, 2);
}

TEST_F(WatchdogTest, WhatWasThawedIsLeftAlone) {
  auto watchdog = MustStart(kLong);
  ASSERT_TRUE(watchdog->NoteFrozen(1, 0, Process(1, 100, 1)));
  ASSERT_TRUE(watchdog->NoteFrozen(2, 0, Process(2, 200, 2)));
  ASSERT_TRUE(watchdog->NoteFrozen(2, 1, Process(2, 200, 3)));
  watchdog->NoteThawed(1, 0);
  watchdog->NoteThawed(2, 0);
  watchdog->NoteThawed(77, 0);
  EXPECT_FALSE(watchdog->Beat());
  watchdog.reset();
  ASSERT_EQ(seen_->thaws, 1);
  EXPECT_EQ(seen_->thaw[0].pid, 2);
  EXPECT_EQ(seen_->thaw[0].gpu, 1u);
}

TEST_F(WatchdogTest, ItsDeathIsNoticedAndHarmsNobody) {
  auto watchdog = MustStart(kLong);
  ASSERT_TRUE(watchdog->NoteFrozen(1, 0, Process(1, 100, 1)));
  testing::internal::CaptureStderr();
  ASSERT_EQ(kill(watchdog->pid(), SIGKILL), 0);
  WaitUntil([&] {
    EXPECT_FALSE(watchdog->Beat());
    return kill(watchdog->pid(), 0) != 0;  // waited for
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("the watchdog is gone"));
  watchdog.reset();
}

TEST_F(WatchdogTest, WithNothingFrozenItNeedsNoControl) {
  MustStart(kLong).reset();
  EXPECT_EQ(seen_->opened, 0);
}

TEST_F(WatchdogTest, ManyChannelsTakeSeveralSlots) {
  auto watchdog = MustStart(kLong);
  ASSERT_TRUE(watchdog->NoteFrozen(1, 0, Process(1, 0, 500)));
  ASSERT_TRUE(watchdog->NoteFrozen(1, 0, Process(1, 0, 130)));  // instead
  watchdog.reset();
  ASSERT_EQ(seen_->thaws, 1);
  EXPECT_EQ(seen_->thaw[0].channels, 130u);
  EXPECT_EQ(seen_->thaw[0].sum_of_handles, 130u * 131 / 2);
}

TEST_F(WatchdogTest, TriesAgain) {
  seen_->to_refuse = 2;
  seen_->to_fail = 1;
  auto watchdog = MustStart(kLong);
  ASSERT_TRUE(watchdog->NoteFrozen(1, 0, {.pid = 1}));
  watchdog.reset();
  EXPECT_EQ(seen_->opened, 4);
  EXPECT_EQ(seen_->thaws, 1);
}

// The page that a process shares, with its move guard.
class SharedGuard {
 public:
  static constexpr std::uint32_t kOffset = 64;
  SharedGuard() : file_(memfd_create("guard", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(file_.Get(), MoveGuardPage::kBytes), 0);
    bytes_ = static_cast<std::byte*>(
        mmap(nullptr, MoveGuardPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.Get(), 0));
  }
  ~SharedGuard() { munmap(bytes_, MoveGuardPage::kBytes); }
  int File() const { return file_.Get(); }
  MoveGuard* operator->() const { return reinterpret_cast<MoveGuard*>(bytes_ + kOffset); }

 private:
  UniqueFd file_;
  std::byte* bytes_;
};

TEST_F(WatchdogTest, WhoseMemoryIsMovedIsThawedWhenItCouldGoOn) {
  const SharedGuard moved;
  moved->unsafe = 1;
  const auto watchdog = MustStart(kShort);
  watchdog->HeedMoveGuard(getpid(), 0, moved.File(), SharedGuard::kOffset);
  ASSERT_TRUE(watchdog->NoteFrozen(getpid(), 0, Process(getpid(), 100, 1)));
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 0, Process(1234, 100, 1)));
  WaitUntil([&] { return moved->released == 1 && seen_->thaws >= 1; });
  EXPECT_EQ(seen_->thaw[0].pid, 1234);
  EXPECT_EQ(seen_->thaws, 1) << "the other one is thawed, and not again and again";
  moved->unsafe = 0;
  WaitUntil([&] { return seen_->thaws >= 2; });
  EXPECT_EQ(seen_->thaw[1].pid, getpid());
}

// Its work on the one GPU may reach the memory on the other.
TEST_F(WatchdogTest, WhoseMemoryOnAnotherGpuIsMovedIsThawedWhenItCouldGoOn) {
  const SharedGuard moved, here;
  moved->unsafe = 1;
  const auto watchdog = MustStart(kShort);
  watchdog->HeedMoveGuard(getpid(), 0, moved.File(), SharedGuard::kOffset);
  watchdog->HeedMoveGuard(getpid(), 1, here.File(), SharedGuard::kOffset);
  ASSERT_TRUE(watchdog->NoteFrozen(getpid(), 1, Process(getpid(), 100, 1)));
  ASSERT_TRUE(watchdog->NoteFrozen(1234, 1, Process(1234, 100, 1)));
  WaitUntil([&] { return moved->released == 1 && seen_->thaws >= 1; });
  EXPECT_EQ(seen_->thaw[0].pid, 1234);
  EXPECT_EQ(seen_->thaws, 1);
  moved->unsafe = 0;
  WaitUntil([&] { return seen_->thaws >= 2; });
  EXPECT_EQ(seen_->thaw[1].pid, getpid());
}

TEST_F(WatchdogTest, ItsLastThawWaitsForWhoCannotGoOnYet) {
  const SharedGuard moved;
  moved->unsafe = 1;
  auto watchdog = MustStart(kLong);
  watchdog->HeedMoveGuard(getpid(), 0, moved.File(), SharedGuard::kOffset);
  watchdog->HeedMoveGuard(499'999'999, 0, moved.File(), SharedGuard::kOffset);  // it has ended
  ASSERT_TRUE(watchdog->NoteFrozen(getpid(), 0, Process(getpid(), 100, 1)));
  ASSERT_TRUE(watchdog->NoteFrozen(499'999'999, 0, Process(499'999'999, 100, 1)));
  std::thread settles([&] {
    WaitUntil([&] { return moved->released == 1 && seen_->thaws == 1; });
    moved->unsafe = 0;
  });
  watchdog.reset();
  settles.join();
  EXPECT_EQ(seen_->thaws, 2);
  EXPECT_EQ(seen_->thaw[1].pid, getpid());
}

TEST_F(WatchdogTest, WhoIsNoLongerGuardedIsThawedAtOnce) {
  const SharedGuard moved;
  moved->unsafe = 1;
  auto watchdog = MustStart(kLong);
  watchdog->HeedMoveGuard(getpid(), 0, moved.File(), SharedGuard::kOffset);
  watchdog->DropMoveGuard(getpid(), 0);
  ASSERT_TRUE(watchdog->NoteFrozen(getpid(), 0, Process(getpid(), 100, 1)));
  watchdog.reset();
  EXPECT_EQ(seen_->thaws, 1);
  EXPECT_EQ(moved->released, 0u);
}

TEST_F(WatchdogTest, ItKeepsItsLockUntilTheLastThaw) {
  const TemporaryFolder folder;
  const std::string path = folder.File("lock", "");
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.Get(), LOCK_EX), 0);
  auto watchdog = Watchdog::Start(Open(), kLong, std::move(lock));
  ASSERT_TRUE(watchdog);
  const UniqueFd next(open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_NE(flock(next.Get(), LOCK_EX | LOCK_NB), 0);
  watchdog->reset();
  EXPECT_EQ(flock(next.Get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(WatchdogTest, WhoCannotGoOnYetIsLeftToTheDaemonThatTouchesTheLock) {
  const TemporaryFolder folder;
  const std::string path = folder.File("lock", "");
  const SharedGuard moved;
  moved->unsafe = 1;
  auto watchdog = Watchdog::Start(Open(), kLong, UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC)));
  ASSERT_TRUE(watchdog);
  (*watchdog)->HeedMoveGuard(getpid(), 0, moved.File(), SharedGuard::kOffset);
  for (const pid_t pid : {getpid(), 1234}) ASSERT_TRUE((*watchdog)->NoteFrozen(pid, 0, Process(pid, 100, 1)));
  const UniqueFd child(static_cast<int>(syscall(SYS_pidfd_open, (*watchdog)->pid(), 0)));
  std::thread next([&] {
    WaitUntil([&] { return moved->released == 1 && seen_->thaws == 1; });
    const UniqueFd lock(open(path.c_str(), O_RDWR | O_CLOEXEC));
    futimens(lock.Get(), nullptr);
    pollfd end = {.fd = child.Get(), .events = POLLIN};
    poll(&end, 1, 5000);
    moved->unsafe = 0;  // it would thaw it
  });
  watchdog->reset();
  next.join();
  EXPECT_EQ(seen_->thaws, 1);
  EXPECT_EQ(seen_->thaw[0].pid, 1234);
}

TEST_F(WatchdogTest, TheDaemonsDeathIsSeen) {
  // The orphan comes to us.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::atomic<pid_t>* const orphan = &seen_->thaw[63].pid;
  soft::TestProcess daemon([&](soft::TestProcess::Peer& test) {
    const auto watchdog = MustStart(kLong);
    ASSERT_TRUE(watchdog->NoteFrozen(1, 0, Process(1, 100, 8)));
    ASSERT_TRUE(watchdog->NoteFrozen(2, 3, {.pid = 2}));
    *orphan = watchdog->pid();
    test.Say();
    test.Hear();
  });
  ASSERT_TRUE(daemon.Hear());
  // Signals that end a daemon do not end its watchdog.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) kill(*orphan, number);
  daemon.Kill();
  int status = -1;
  ASSERT_EQ(waitpid(*orphan, &status, 0), *orphan);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(seen_->thaws, 2);
  EXPECT_EQ(seen_->thaw[0].pid, 1);
  EXPECT_EQ(seen_->thaw[1].pid, 2);
  EXPECT_EQ(seen_->thaw[1].gpu, 3u);
}

TEST_F(WatchdogTest, HoldsNoneOfTheDaemonsFiles) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const auto watchdog = MustStart(kLong);
  writing.Reset();
  char byte;
  EXPECT_EQ(read(reading.Get(), &byte, 1), 0);  // at its end: nobody else has it
  std::string name;
  std::ifstream("/proc/" + std::to_string(watchdog->pid()) + "/comm") >> name;
  EXPECT_EQ(name, "tesserad-wdog");
}

// All of it on a soft GPU: a process that a dead daemon froze runs again.
TEST_F(WatchdogTest, AFrozenProcessRunsAgain) {
  const soft::ScratchState scratch;
  const auto attach = [&] { return soft::SharedState::Attach(scratch.path(), "1GiB,speed=1M,slice=1ms"); };
  const auto state = attach();
  ASSERT_TRUE(state);
  soft::TestProcess tenant([&](soft::TestProcess::Peer& test) {
    const auto mine = attach();
    soft::Arbiter arbiter(**mine, 0);
    test.Say();
    for (arbiter.Acquire();;) {
      arbiter.Charge(100);
      if (arbiter.ShouldYield()) arbiter.Yield();
    }
  });
  ASSERT_TRUE(tenant.Hear());
  // A process that has never executed is not listed.
  const auto frozen_or_not = [&]() -> std::optional<bool> {
    const auto processes = (*state)->Processes(0);
    const auto found = std::ranges::find(processes, tenant.pid(), &soft::ProcessUse::pid);
    if (found == processes.end()) return std::nullopt;
    return found->frozen != soft::Frozen::kNothing;
  };
  WaitUntil([&] { return frozen_or_not() == false; });
  soft::TestProcess daemon([&](soft::TestProcess::Peer& test) {
    const auto open = [&]() -> Result<std::unique_ptr<Control>> {
      auto mine = attach();
      if (!mine) return std::unexpected(mine.error());
      return MakeSoftControl(std::move(*mine));
    };
    const auto watchdog = Watchdog::Start(open, kLong);
    ASSERT_TRUE(watchdog);
    const auto control = open();
    ASSERT_TRUE(control);
    const Target target = {.pid = tenant.pid()};
    ASSERT_TRUE((*watchdog)->NoteFrozen(target.pid, 0, target));
    ASSERT_TRUE((*control)->Freeze(0, {&target, 1}, Reach::kCompute));
    test.Say();
    test.Hear();
  });
  ASSERT_TRUE(daemon.Hear());
  WaitUntil([&] { return frozen_or_not() == true; });
  daemon.Kill();
  WaitUntil([&] { return frozen_or_not() == false; });
}

TEST(FrozenNotes, AFullTableSaysSo) {
  const auto page = std::make_unique<WatchdogPage>();
  FrozenNotes notes(*page);
  const auto slots = static_cast<pid_t>(WatchdogPage::kSlots);
  for (pid_t pid = 1; pid <= slots; ++pid) ASSERT_TRUE(notes.Note(pid, 0, Process(pid, 1, 64)));
  EXPECT_FALSE(notes.Note(slots + 1, 0, {}));
  EXPECT_FALSE(notes.Note(1, 0, Process(1, 1, 65)));
  EXPECT_EQ(ReadFrozen(*page).size(), WatchdogPage::kSlots);
  notes.Erase(5, 0);
  EXPECT_TRUE(notes.Note(slots + 1, 0, {}));
}

RC_GTEST_PROP(FrozenNotesProperty, WhatIsReadIsWhatWasNoted, ()) {
  const auto page = std::make_unique<WatchdogPage>();
  FrozenNotes notes(*page);
  std::map<std::pair<pid_t, std::uint32_t>, Target> expected;
  const int steps = *rc::gen::inRange(0, 60);
  for (int i = 0; i < steps; ++i) {
    const auto pid = *rc::gen::inRange(1, 6);
    const auto gpu = *rc::gen::inRange<std::uint32_t>(0, 2);
    if (*rc::gen::inRange(0, 3) == 0) {
      notes.Erase(pid, gpu);
      expected.erase({pid, gpu});
    } else {
      const Target target = Process(pid, *rc::gen::inRange(1u, 9u), *rc::gen::inRange(0u, 200u));
      RC_ASSERT(notes.Note(pid, gpu, target));
      expected[{pid, gpu}] = target;
    }
    const auto frozen = ReadFrozen(*page);
    RC_ASSERT(frozen.size() == expected.size());
    for (const auto& [key, target] : expected) {
      const Target& read = frozen.at(key);
      std::vector<std::uint32_t> channels;
      for (const Group& group : read.groups) {
        RC_ASSERT(group.client == target.groups[0].client);
        channels.insert(channels.end(), group.channels.begin(), group.channels.end());
      }
      std::ranges::sort(channels);
      RC_ASSERT(channels == target.groups[0].channels);
    }
  }
}

// Noted and erased while somebody reads: what is read is always one whole state.
TEST(FrozenNotes, AReaderSeesWholeStates) {
  const auto page = std::make_unique<WatchdogPage>();
  std::atomic<bool> stop = false;
  std::thread daemon([&] {
    FrozenNotes notes(*page);
    for (std::uint32_t round = 1; !stop; ++round) {
      // All handles of a state are the client's number.
      const Target target = {
          .pid = 1, .groups = {{.client = round, .channels = std::vector<std::uint32_t>(1 + round % 64, round)}}};
      ASSERT_TRUE(notes.Note(1, 0, target));
      if (round % 3 == 0) notes.Erase(1, 0);
    }
  });
  int states = 0;
  while (states < 20'000) {
    const auto frozen = ReadFrozen(*page);
    for (const auto& [key, target] : frozen) {
      for (const Group& group : target.groups) {
        ++states;
        ASSERT_EQ(group.channels, std::vector<std::uint32_t>(1 + group.client % 64, group.client));
      }
    }
  }
  stop = true;
  daemon.join();
}

}  // namespace
}  // namespace tessera::channel
