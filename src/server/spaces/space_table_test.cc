#include "server/spaces/space_table.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "server/testing/fake_mps.h"

namespace tessera::server {
namespace {

using SpaceState = Space::State;
using testing::HasSubstr;

class SpaceTableTest : public FakeMpsTest {
 protected:
  void SetUp() override {
    FakeMpsTest::SetUp();
    setup_ = {.folder = folder_.path() + "/mps", .program = Program(), .why_none = "", .linger = 0};
    Restart();
  }
  void TearDown() override {
    // It leaves its control daemons to the next one.
    On([this] {
      table_->EndLeftOvers();
      for (const std::string& name : Names()) {
        while (table_->Find(name)->VGpus() > 0) table_->Leave(name);
        (void)table_->Remove(name);
      }
    });
    WaitUntil([this] { return None(); });
    On([this] { table_.reset(); });
    FakeMpsTest::TearDown();
  }

  // As the next daemon.
  void Restart() {
    On([this] {
      table_.reset();
      table_ = std::make_unique<SpaceTable>(*loop_, setup_, [this](const Space&) { ++changes_; });
    });
  }
  Result<std::uint32_t> Enter(const std::string& name, uid_t uid = getuid(), std::uint32_t gpu = 0) {
    return On([&] { return table_->Enter(name, uid, gpu, "GPU-" + std::to_string(gpu)); });
  }
  Result<void> Create(const std::string& name) {
    return On([&] { return table_->Create(name, getuid(), 0, "GPU-0"); });
  }
  Result<void> Remove(const std::string& name) {
    return On([&] { return table_->Remove(name); });
  }
  void Leave(const std::string& name) {
    On([&] { table_->Leave(name); });
  }
  bool None() {
    return On([this] { return !table_->Any(); });
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Space* space : table_->All()) names.push_back(space->Who().name);
    return names;
  }
  SpaceState Present(const std::string& name) {
    return On([&] {
      const Space* space = table_->Find(name);
      return space ? space->Present() : SpaceState::kClosing;
    });
  }
  pid_t Daemon(const std::string& name) {
    return On([&] { return table_->Find(name)->ControlDaemon(); });
  }
  void BecomesReady(const std::string& name) {
    WaitUntil([&] { return Present(name) == SpaceState::kReady; });
  }
  Error Refused(const std::string& name, uid_t uid = getuid(), std::uint32_t gpu = 0) {
    const auto entered = Enter(name, uid, gpu);
    EXPECT_FALSE(entered);
    return entered ? Error{} : entered.error();
  }
  bool HasFolder(const std::string& name) const { return std::filesystem::exists(setup_.folder + "/" + name); }

  SpaceTable::Setup setup_;
  std::unique_ptr<SpaceTable> table_;
  std::atomic<int> changes_ = 0;
};

TEST_F(SpaceTableTest, TheFirstMakesItAndTheLastEndsIt) {
  EXPECT_TRUE(None());
  const auto first = Enter("a");
  ASSERT_TRUE(first) << first.error().Text();
  EXPECT_GT(*first, 0u);
  EXPECT_EQ(*Enter("a"), *first);
  EXPECT_NE(*Enter("b"), *first);
  BecomesReady("a");
  EXPECT_GT(changes_, 0);
  struct stat status = {};
  ASSERT_EQ(stat((setup_.folder + "/a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0711u) << "users pass through, and see no names";
  Leave("a");
  EXPECT_EQ(Present("a"), SpaceState::kReady);
  Leave("a");
  WaitUntil([this] { return On([this] { return table_->Find("a") == nullptr; }); });
  EXPECT_FALSE(HasFolder("a"));
  EXPECT_TRUE(HasFolder("b"));
  Leave("nothing");
}

TEST_F(SpaceTableTest, ItLingersForTheNextOne) {
  setup_.linger = 1000 * kSecond;
  Restart();
  const auto number = Enter("a");
  BecomesReady("a");
  const pid_t daemon = Daemon("a");
  Leave("a");
  EXPECT_EQ(Present("a"), SpaceState::kReady);
  EXPECT_EQ(*Enter("a"), *number);
  EXPECT_EQ(Daemon("a"), daemon);
}

TEST_F(SpaceTableTest, WhoComesBackInTimeKeepsIt) {
  setup_.linger = kMillisecond;
  Restart();
  (void)Enter("a");
  On([this] {
    table_->Leave("a");
    (void)table_->Enter("a", getuid(), 0, "GPU-0");
  });
  BecomesReady("a");
  (void)Enter("b");
  Leave("b");
  WaitUntil([this] { return On([this] { return table_->Find("b") == nullptr; }); });  // its linger is over, and a's
  EXPECT_EQ(Present("a"), SpaceState::kReady);
}

// The vGPU knows the space by the number that it got.
TEST_F(SpaceTableTest, WhoEntersWhileItClosesGetsItAgain) {
  (void)Enter("a");
  BecomesReady("a");
  const pid_t first = Daemon("a");
  Leave("a");
  WaitUntil([this] { return Present("a") == SpaceState::kClosing; });
  // It closes, or has closed already.
  const auto again = Enter("a");
  ASSERT_TRUE(again);
  BecomesReady("a");
  EXPECT_NE(Daemon("a"), first);
  On([&] {
    EXPECT_EQ(table_->Find("a")->Who().number, *again);
    EXPECT_EQ(table_->Find("a")->VGpus(), 1);
  });
}

TEST_F(SpaceTableTest, WhileItClosesItIsMadeToLast) {
  On([this] {
    const auto number = table_->Enter("a", getuid(), 0, "GPU-0");
    table_->Find("a")->Close();
    EXPECT_EQ(*table_->Enter("a", getuid(), 0, "GPU-0"), *number);
    EXPECT_TRUE(table_->Create("a", getuid(), 0, "GPU-0"));
  });
  BecomesReady("a");
  On([this] {
    EXPECT_EQ(table_->Find("a")->VGpus(), 2);
    EXPECT_TRUE(table_->Find("a")->Kept());
    EXPECT_EQ(table_->Find("a")->Who().number, 1u);
  });
}

TEST_F(SpaceTableTest, ASpaceThatCannotBeMadeAgainIsThereAndNotReady) {
  On([this] {
    (void)table_->Enter("a", getuid(), 0, "GPU-0");
    table_->Find("a")->Close();
    (void)table_->Enter("a", getuid(), 0, "GPU-0");
    std::filesystem::rename(setup_.folder, folder_.path() + "/moved");
    std::ofstream(setup_.folder) << "no directory";
  });
  WaitUntil([this] { return Present("a") == SpaceState::kStarting; });
  On([this] { EXPECT_EQ(table_->Find("a")->VGpus(), 2); });
}

// The control program is the user's, who may stop it.
TEST_F(SpaceTableTest, AnAnswerThatDoesNotComeDoesNotHoldUpTheLoop) {
  (void)Enter("a");
  BecomesReady("a");
  Write("said", "");
  ASSERT_EQ(mkfifo((folder_.path() + "/held").c_str(), 0600), 0);
  UniqueFd writer(open((folder_.path() + "/held").c_str(), O_RDWR | O_CLOEXEC));
  On([this] { table_->Tick(); });
  WaitUntil([this] { return Said("get_server_list"); });
  Leave("a");
  WaitUntil([this] { return !std::filesystem::exists(setup_.folder + "/a/daemon"); });
  On([] {});  // the control daemon has ended, and the space may go next
  EXPECT_EQ(Present("a"), SpaceState::kClosing);
  EXPECT_FALSE(None());
  Erase("held");
  writer.Reset();
  WaitUntil([this] { return None(); });
}

TEST_F(SpaceTableTest, AnotherUserOrGpuCannotEnter) {
  (void)Enter("a");
  EXPECT_EQ(Refused("a", getuid(), 1).code, EXDEV);
  const Error others = Refused("a", getuid() + 1);
  EXPECT_EQ(others.code, EPERM);
  if (geteuid() == 0) {
    EXPECT_THAT(others.message, HasSubstr("belongs to another user"));
  } else {
    EXPECT_THAT(others.message, HasSubstr("cannot run an MPS server for user"));
  }
  On([this] { EXPECT_EQ(table_->Find("a")->VGpus(), 1); });
}

TEST_F(SpaceTableTest, TheNextUserWaitsForTheEnd) {
  setup_.linger = 1000 * kSecond;
  Restart();
  (void)Enter("a");
  Leave("a");
  EXPECT_EQ(Refused("a", getuid(), 1).code, EAGAIN);
}

TEST_F(SpaceTableTest, NamesAndPathsHaveBounds) {
  for (const std::string name : {"", "..", "a/b", "a b"}) EXPECT_EQ(Refused(name).code, EINVAL) << name;
  EXPECT_EQ(Refused(std::string(SpaceTable::kLongestName + 1, 'n')).code, EINVAL);
  EXPECT_TRUE(Enter(std::string(SpaceTable::kLongestName, 'n')));
  setup_.folder = folder_.path() + "/" + std::string(80, 'f');
  Restart();
  EXPECT_EQ(Refused("a").code, ENAMETOOLONG);
  setup_.folder = folder_.path() + "/mps";
  Restart();
}

TEST_F(SpaceTableTest, WithoutMpsThereAreNone) {
  setup_.program.clear();
  setup_.why_none = "MPS is not installed";
  Restart();
  const Error error = Refused("a");
  EXPECT_EQ(error.code, ENOSYS);
  EXPECT_THAT(error.message, HasSubstr("MPS is not installed"));
  EXPECT_TRUE(None());
}

TEST_F(SpaceTableTest, WhatCannotOpenLeavesNothingBehind) {
  setup_.program = "/nowhere/nvidia-cuda-mps-control";
  Restart();
  EXPECT_EQ(Refused("a").code, ENOENT);
  EXPECT_FALSE(Create("a"));
  EXPECT_TRUE(None());
}

TEST_F(SpaceTableTest, AKeptOneEndsWhenItIsRemoved) {
  EXPECT_TRUE(Create("a"));
  EXPECT_EQ(Create("a").error().code, EEXIST);
  BecomesReady("a");
  (void)Enter("a");
  Leave("a");
  (void)Enter("b");
  Leave("b");
  WaitUntil([this] { return On([this] { return table_->Find("b") == nullptr; }); });
  EXPECT_EQ(Present("a"), SpaceState::kReady);
  EXPECT_TRUE(Remove("a"));
  WaitUntil([this] { return None(); });
  EXPECT_EQ(Remove("a").error().code, ENOENT);
}

TEST_F(SpaceTableTest, ARemovedOneEndsWithItsLastVgpu) {
  EXPECT_TRUE(Create("a"));
  (void)Enter("a");
  EXPECT_TRUE(Remove("a"));
  EXPECT_NE(Present("a"), SpaceState::kClosing);
  Leave("a");
  WaitUntil([this] { return None(); });
}

TEST_F(SpaceTableTest, TheNextDaemonGoesOnWithIt) {
  (void)Enter("a");
  BecomesReady("a");
  const pid_t daemon = Daemon("a");
  Restart();
  (void)Enter("a");
  EXPECT_EQ(Daemon("a"), daemon);
  On([this] { table_->EndLeftOvers(); });
  BecomesReady("a");
}

TEST_F(SpaceTableTest, WhatAnEarlierDaemonLeftIsEnded) {
  (void)Enter("a");
  (void)Enter("b");
  BecomesReady("a");
  const pid_t daemon = Daemon("a");
  Restart();
  (void)Enter("b");
  On([this] { table_->EndLeftOvers(); });
  WaitUntil([this] { return On([this] { return table_->Find("a") == nullptr; }); });
  EXPECT_EQ(kill(daemon, 0), -1);
  EXPECT_FALSE(HasFolder("a"));
  EXPECT_NE(Present("b"), SpaceState::kClosing);
}

// Nobody knows on which GPU the space was that an earlier daemon left.
TEST_F(SpaceTableTest, WhoEntersALeftOneGetsItOnItsGpu) {
  (void)Enter("a");
  BecomesReady("a");
  Restart();
  On([this] {
    table_->EndLeftOvers();
    (void)table_->Enter("a", getuid(), 0, "GPU-7");
  });
  BecomesReady("a");
  EXPECT_THAT(Read("starts"), testing::EndsWith("GPU-7\n"));
}

TEST_F(SpaceTableTest, OnlySpacesWithVgpusAreLookedAfter) {
  (void)Enter("a");
  BecomesReady("a");
  Write("servers", "815\n");
  On([this] { table_->Tick(); });
  WaitUntil([this] { return On([this] { return table_->Find("a")->Server() == 815; }); });
}

}  // namespace
}  // namespace tessera::server
