#include "server/spaces/mps_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/install/own_program.h"
#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"

namespace tessera::server {
namespace {

// With the stand-in of the control daemon.
class MpsCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = std::filesystem::path(folder_.path()).filename().string();
    setenv("TESSERA_SOFT_NAME", name.c_str(), 1);
    place_ = {.program = TESSERA_SOFT_MPS_CONTROL, .pipes = folder_.path() + "/pipe", .logs = folder_.path() + "/log"};
  }
  void TearDown() override {
    if (daemon_ > 0) {
      kill(daemon_, SIGKILL);
      waitpid(daemon_, nullptr, 0);
    }
    unsetenv("TESSERA_SOFT_NAME");
  }

  // The control program is a script from now on.
  void Say(const std::string& script) {
    place_.program = folder_.path() + "/program";
    std::ofstream(place_.program) << "#!/bin/sh\ncd " << folder_.path() << "\n" << script << "\n";
    std::filesystem::permissions(place_.program, std::filesystem::perms::owner_all);
  }
  void StartDaemon() {
    const auto pid = Spawn(place_.Program({"-f"}));
    ASSERT_TRUE(pid) << pid.error().Text();
    daemon_ = *pid;
    WaitUntil([&] { return Commands().Servers().has_value(); });
  }
  MpsCommands Commands() const { return MpsCommands(place_); }

  const TemporaryFolder folder_;
  MpsPlace place_;
  pid_t daemon_ = 0;
};

TEST_F(MpsCommandsTest, WithoutADaemonTheyFail) {
  const auto servers = Commands().Servers();
  ASSERT_FALSE(servers);
  EXPECT_EQ(servers.error().code, ESRCH);
  EXPECT_EQ(servers.error().message, "MPS command 'get_server_list' failed: Cannot find MPS control daemon process");
}

TEST_F(MpsCommandsTest, WithoutTheProgramTheyFail) {
  place_.program = "/nowhere/nvidia-cuda-mps-control";
  EXPECT_EQ(Commands().Servers().error().code, ENOENT);
}

TEST_F(MpsCommandsTest, AnAnswerThatIsNoneIsAnError) {
  place_.program = "/bin/cat";
  const auto servers = Commands().Servers();
  ASSERT_FALSE(servers);
  EXPECT_EQ(servers.error().code, EPROTO);
  EXPECT_EQ(servers.error().message, "unexpected answer of the MPS control daemon: get_server_list");
}

// The daemon is the user's, and the message is read by operators.
TEST_F(MpsCommandsTest, AnAnswerDoesNotReachATerminalAsItIs) {
  Say(R"(printf '\033]0;title\007red\n'; head -c 5000 /dev/zero)");
  const auto servers = Commands().Servers();
  ASSERT_FALSE(servers);
  EXPECT_THAT(servers.error().message,
              testing::StartsWith("unexpected answer of the MPS control daemon: ?]0;title?red "));
  EXPECT_LT(servers.error().message.size(), 300u);
  for (const char each : servers.error().message) EXPECT_TRUE(each >= ' ' && each <= '~') << static_cast<int>(each);
}

// As one that its user has stopped.
TEST_F(MpsCommandsTest, AProgramThatDoesNotEndIsKilled) {
  Say("echo $$ > pid; exec >&- 2>&-; exec sleep 1000000");
  const auto servers = MpsCommands(place_, 200 * kMillisecond).Servers();
  ASSERT_FALSE(servers);
  EXPECT_EQ(servers.error().code, ESRCH);
  pid_t pid = 0;
  std::ifstream(folder_.path() + "/pid") >> pid;
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(MpsCommandsTest, AProgramThatDoesNotAnswerIsKilled) {
  Say("exec sleep 1000000");
  const auto servers = MpsCommands(place_, 50 * kMillisecond).Servers();
  ASSERT_FALSE(servers);
  EXPECT_EQ(servers.error().code, ETIMEDOUT);
}

TEST_F(MpsCommandsTest, ServersAndClientsAreListedAndEnded) {
  StartDaemon();
  EXPECT_THAT(*Commands().Servers(), testing::IsEmpty());
  const auto started = Commands().StartServer(getuid());
  ASSERT_TRUE(started) << started.error().Text();
  const auto servers = Commands().Servers();
  ASSERT_EQ(servers->size(), 1u);
  EXPECT_THAT(*Commands().Clients(servers->front()), testing::IsEmpty());
  EXPECT_FALSE(*Commands().HasFaulted(servers->front()));
  EXPECT_TRUE(Commands().Terminate(servers->front(), getpid())) << "it is no client";
  EXPECT_EQ(Commands().Terminate(getpid(), getpid()).error().code, EPROTO) << "there is no such server";
  EXPECT_TRUE(Commands().Quit());
  EXPECT_EQ(waitpid(daemon_, nullptr, 0), daemon_);
  daemon_ = 0;
  EXPECT_EQ(Commands().Servers().error().code, ESRCH);
}

}  // namespace
}  // namespace tessera::server
