#include "server/spaces/mps_daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"

namespace tessera::server {
namespace {

// With the stand-in of the control daemon, and a loop on a thread of its own.
class MpsDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TESSERA_SOFT_NAME", std::filesystem::path(folder_.path()).filename().c_str(), 1);
    place_ = {.program = TESSERA_SOFT_MPS_CONTROL, .pipes = folder_.path() + "/pipe", .logs = folder_.path() + "/log"};
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
    thread_ = std::thread([this] { (void)loop_->Run(); });
  }
  void TearDown() override {
    if (daemon_) Close();
    loop_->Post([this] { loop_->Stop(); });
    thread_.join();
    daemon_.reset();
    unsetenv("TESSERA_SOFT_NAME");
  }

  Result<void> Open() {
    return *loop_->Call([this] {
      daemon_ = std::make_unique<MpsDaemon>(
          *loop_, place_, folder_.path() + "/record",
          MpsDaemon::Host{.ended = [this] { ++ends_; }, .closed = [this] { closed_ = true; }});
      return daemon_->Open();
    });
  }
  void Close() {
    (void)loop_->Call([this] {
      daemon_->Close();
      return 0;
    });
    WaitUntil([this] { return closed_.load(); });
  }
  // As when tesserad ends.
  void LetGo() {
    (void)loop_->Call([this] {
      daemon_.reset();
      return 0;
    });
  }
  pid_t Pid() {
    return *loop_->Call([this] { return daemon_->Pid(); });
  }
  bool Answers() const { return MpsCommands(place_).Servers().has_value(); }
  bool Recorded() const { return std::filesystem::exists(folder_.path() + "/record"); }

  const TemporaryFolder folder_;
  MpsPlace place_;
  std::unique_ptr<EventLoop> loop_;
  std::thread thread_;
  std::unique_ptr<MpsDaemon> daemon_;
  std::atomic<int> ends_ = 0;
  std::atomic<bool> closed_ = false;
};

TEST_F(MpsDaemonTest, ItOpensAndCloses) {
  ASSERT_TRUE(Open());
  const pid_t pid = Pid();
  EXPECT_GT(pid, 0);
  WaitUntil([this] { return Answers(); });
  struct stat status = {};
  ASSERT_EQ(stat(place_.pipes.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  Close();
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(ends_, 0);
  EXPECT_FALSE(Recorded());
}

TEST_F(MpsDaemonTest, TheNextOneTakesItOver) {
  ASSERT_TRUE(Open());
  const pid_t pid = Pid();
  WaitUntil([this] { return Answers(); });
  LetGo();
  EXPECT_EQ(kill(pid, 0), 0);
  ASSERT_TRUE(Open());
  EXPECT_EQ(Pid(), pid);
}

TEST_F(MpsDaemonTest, ARecordOfAnotherProcessNamesNone) {
  std::ofstream(folder_.path() + "/record") << getpid() << " 1\n";
  ASSERT_TRUE(Open());
  EXPECT_NE(Pid(), getpid());
  WaitUntil([this] { return Answers(); });
}

TEST_F(MpsDaemonTest, ItsEndIsToldAndAnotherOneIsStarted) {
  ASSERT_TRUE(Open());
  const pid_t first = Pid();
  kill(first, SIGKILL);
  WaitUntil([this] { return ends_ == 1; });
  WaitUntil([this] { return Pid() != 0; });
  EXPECT_NE(Pid(), first);
  WaitUntil([this] { return Answers(); });
}

TEST_F(MpsDaemonTest, WithoutTheProgramItSaysWhatIsMissing) {
  place_.program = "/nowhere/nvidia-cuda-mps-control";
  const auto opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ENOENT);
  EXPECT_NE(opened.error().message.find(place_.program), std::string::npos);
  EXPECT_EQ(Pid(), 0);
}

// The space is kept where it has vGPUs already.
TEST_F(MpsDaemonTest, WhatCannotStartIsTriedAgain) {
  const std::string program = std::exchange(place_.program, folder_.path() + "/later");
  ASSERT_FALSE(Open());
  std::filesystem::create_symlink(program, place_.program);
  WaitUntil([this] { return Pid() != 0; });
  WaitUntil([this] { return Answers(); });
}

TEST_F(MpsDaemonTest, WithoutAPlaceNothingIsStarted) {
  place_.pipes = folder_.path() + "/missing/pipe";
  const auto opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ENOENT);
  EXPECT_FALSE(Recorded());
}

}  // namespace
}  // namespace tessera::server
