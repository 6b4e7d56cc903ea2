#include "server/spaces/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "server/record/events.h"
#include "server/testing/fake_mps.h"

namespace tessera::server {
namespace {

using SpaceState = Space::State;
using testing::HasSubstr;

class SpaceTest : public FakeMpsTest {
 protected:
  void SetUp() override {
    FakeMpsTest::SetUp();
    std::filesystem::create_directory(folder_.path() + "/a");
    place_ = {.program = Program(),
              .pipes = folder_.path() + "/a/pipe",
              .logs = folder_.path() + "/a/log",
              .user = {},
              .gpu = "GPU-0"};
  }
  void TearDown() override {
    if (space_) Close();
    On([this] { space_.reset(); });
    FakeMpsTest::TearDown();
  }

  Result<void> Open(Nanos until_started = Space::kUntilStarted) {
    return On([&, this] {
      space_ = std::make_unique<Space>(*loop_, Space::Identity{.name = "a", .number = 1, .gpu = 0, .uid = 1234}, place_,
                                       folder_.path() + "/a/daemon",
                                       Space::Host{.changed = [this](const Space& space) { Changed(space); },
                                                   .closed = [this](const Space&) { closed_ = true; }},
                                       until_started);
      return space_->Open();
    });
  }
  void Changed(const Space& space) {
    ++changes_;
    if (space.Present() != SpaceState::kFault) return;
    EXPECT_THAT(space.Error(), HasSubstr("fault"));
    ++faults_;
  }
  void Close() {
    On([this] { space_->Close(); });
    WaitUntil([this] { return closed_.load(); });
  }
  void Look() {
    On([this] { space_->Look(); });
  }
  // Returns after a look that began after this was called.
  void LookTwice() {
    for (int n = 0; n < 2; ++n) {
      const int looks = TimesSaid("get_server_status");
      Look();
      WaitUntil([&, this] { return TimesSaid("get_server_status") > looks; });
    }
  }
  // This client is not terminated.
  void Refuse(pid_t client) {
    Write("clients", std::to_string(client) + "\n");
    Write("refusal", "Invalid process\n");
  }
  SpaceState Present() {
    return On([this] { return space_->Present(); });
  }
  pid_t Server() {
    return On([this] { return space_->Server(); });
  }
  std::string ErrorOf() {
    return On([this] { return space_->Error(); });
  }
  void Becomes(SpaceState state) {
    WaitUntil([&] { return Present() == state; });
  }

  MpsPlace place_;
  std::unique_ptr<Space> space_;
  std::atomic<int> changes_ = 0, faults_ = 0;
  std::atomic<bool> closed_ = false;
};

TEST_F(SpaceTest, ItIsReadyOnceAServerHasStarted) {
  Erase("next");
  ASSERT_TRUE(Open());
  EXPECT_EQ(Present(), SpaceState::kStarting);
  EXPECT_EQ(Server(), 0);
  WaitUntil([this] { return Said("start_server"); });
  EXPECT_EQ(Present(), SpaceState::kStarting);
  Write("next", "4711\n");
  Becomes(SpaceState::kReady);
  EXPECT_EQ(Server(), 4711);
  EXPECT_EQ(ErrorOf(), "");
  EXPECT_TRUE(Said("start_server -uid 1234"));
  EXPECT_EQ(Read("starts"), place_.pipes + " GPU-0\n") << "one daemon, which sees the one GPU";
}

TEST_F(SpaceTest, AServerThatIsThereIsTaken) {
  Write("servers", "815\n");
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  EXPECT_EQ(Server(), 815);
  EXPECT_FALSE(Said("start_server"));
}

TEST_F(SpaceTest, AnotherServerIsSeenByALook) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  const int before = changes_;
  Look();
  Write("servers", "815\n");
  Look();
  WaitUntil([this] { return Server() == 815; });
  EXPECT_EQ(changes_, before + 1) << "what did not change is no news";
}

// As most do, at their next call.
TEST_F(SpaceTest, AFaultPassesWhenTheClientsHaveEnded) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  const std::uint64_t before = events::Last();
  Write("then", "ACTIVE\n");
  Write("status", "FAULT\n");
  Look();
  WaitUntil([this] { return faults_ == 1 && Present() == SpaceState::kReady; });
  EXPECT_EQ(Server(), 4711);
  EXPECT_FALSE(Said("shutdown_server"));
  EXPECT_EQ(ErrorOf(), "");
  auto told = events::After(before, 10).events;
  std::erase_if(told, [](const Event& event) { return event.type == EventType::kWarning; });
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].type, EventType::kSpaceFault);
  EXPECT_EQ(told[1].type, EventType::kSpaceReady);
  EXPECT_EQ(told[1].owner, 1234u);
  EXPECT_EQ(told[1].text, "space a: takes programs again");
}

TEST_F(SpaceTest, AServerWhoseClientsStayAfterAFaultIsEnded) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  Write("next", "815\n");
  Write("status", "FAULT\n");
  Look();
  WaitUntil([this] { return Said("shutdown_server 4711 -f"); });
  Becomes(SpaceState::kReady);
  EXPECT_EQ(Server(), 815);
}

TEST_F(SpaceTest, AfterAFaultItIsReadyWhenAServerIsThereAgain) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  Write("status", "FAULT\n");
  Look();
  Becomes(SpaceState::kFault);
  const std::uint64_t before = events::Last();
  const auto told = [before] {
    const auto events = events::After(before, 100).events;
    return std::ranges::count(events, EventType::kSpaceReady, &Event::type);
  };
  Erase("next");
  Write("servers", "");
  Erase("a/pipe/up");
  kill(On([this] { return space_->ControlDaemon(); }), SIGKILL);
  Becomes(SpaceState::kStarting);
  EXPECT_EQ(told(), 0);
  Write("next", "815\n");
  Write("status", "ACTIVE\n");
  Becomes(SpaceState::kReady);
  EXPECT_EQ(told(), 1);
}

TEST_F(SpaceTest, ClientsAreTerminated) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  On([this] {
    space_->Terminate(getpid());
    space_->Terminate(getppid());  // while the first look is under way
  });
  WaitUntil([this] { return Said("terminate_client 4711 " + std::to_string(getppid())); });
  EXPECT_TRUE(Said("terminate_client 4711 " + std::to_string(getpid())));
  EXPECT_EQ(Present(), SpaceState::kReady);
}

// A refusal has the status of a success.
TEST_F(SpaceTest, ARefusedTerminationIsTriedAgain) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  Refuse(getpid());
  On([this] { space_->Terminate(getpid()); });
  WaitUntil([this] { return TimesSaid("terminate_client") >= 2; });
  Erase("refusal");
  WaitUntil([this] { return Read("terminated") == std::to_string(getpid()) + "\n"; });
  const int tries = TimesSaid("terminate_client");
  LookTwice();
  EXPECT_EQ(TimesSaid("terminate_client"), tries) << "once it is done, that is all";
}

TEST_F(SpaceTest, ATerminationWaitsForAServer) {
  Erase("next");
  ASSERT_TRUE(Open(0));
  On([this] { space_->Terminate(getpid()); });
  WaitUntil([this] { return TimesSaid("start_server") >= 3; });
  Write("next", "4711\n");
  Becomes(SpaceState::kReady);
  WaitUntil([this] { return Read("terminated") == std::to_string(getpid()) + "\n"; });
}

TEST_F(SpaceTest, ATerminationIsGivenUpAfterSomeTriesAndSaysSo) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  Refuse(getpid());
  const std::uint64_t before = events::Last();
  On([this] { space_->Terminate(getpid()); });
  const auto told = [before] {
    for (const Event& event : events::After(before, 100).events)
      if (event.text.find("work may run on") != std::string::npos) return event.text;
    return std::string();
  };
  WaitUntil([&] { return !told().empty(); });
  EXPECT_THAT(told(), testing::AllOf(HasSubstr("process " + std::to_string(getpid())), HasSubstr("Invalid process")));
  LookTwice();
  EXPECT_EQ(TimesSaid("terminate_client"), Space::kMostTries);
  EXPECT_EQ(Present(), SpaceState::kReady);
}

TEST_F(SpaceTest, AClientThatEndsNeedsNoTermination) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  const pid_t client = fork();
  if (client == 0) {
    pause();
    _exit(0);
  }
  Refuse(client);
  const std::uint64_t before = events::Last();
  On([&] { space_->Terminate(client); });
  WaitUntil([this] { return TimesSaid("terminate_client") >= 1; });
  kill(client, SIGKILL);
  waitpid(client, nullptr, 0);
  LookTwice();
  const int tries = TimesSaid("terminate_client");
  LookTwice();
  EXPECT_EQ(TimesSaid("terminate_client"), tries);
  EXPECT_THAT(events::After(before, 100).events, testing::IsEmpty());
  On([&] { space_->Terminate(client); });
  LookTwice();
  EXPECT_EQ(TimesSaid("terminate_client"), tries) << "nor one that has ended already";
}

TEST_F(SpaceTest, AControlDaemonThatEndsIsReplaced) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  const pid_t first = On([this] { return space_->ControlDaemon(); });
  Erase("a/pipe/up");  // as of one that has ended
  Write("servers", "");
  Write("next", "815\n");
  kill(first, SIGKILL);
  WaitUntil([this] { return Present() == SpaceState::kReady && Server() == 815; });
  EXPECT_NE(On([this] { return space_->ControlDaemon(); }), first);
}

TEST_F(SpaceTest, ItTellsThatItsControlDaemonEnded) {
  ASSERT_TRUE(Open());
  Becomes(SpaceState::kReady);
  Erase("next");
  Write("servers", "");
  Erase("a/pipe/up");
  kill(On([this] { return space_->ControlDaemon(); }), SIGKILL);
  Becomes(SpaceState::kStarting);
  EXPECT_EQ(ErrorOf(), "its MPS control daemon ended");
  EXPECT_EQ(Server(), 0);
}

TEST_F(SpaceTest, CloseEndsItInAnyState) {
  Erase("next");
  ASSERT_TRUE(Open());
  WaitUntil([this] { return Said("start_server"); });
  const pid_t daemon = On([this] { return space_->ControlDaemon(); });
  Close();
  EXPECT_EQ(Present(), SpaceState::kClosing);
  EXPECT_EQ(Server(), 0);
  EXPECT_EQ(kill(daemon, 0), -1);
  EXPECT_TRUE(Said("quit -t 0"));
  Write("next", "4711\n");
  Look();
  EXPECT_EQ(Present(), SpaceState::kClosing) << "for good";
  EXPECT_EQ(Read("starts"), place_.pipes + " GPU-0\n");
}

TEST_F(SpaceTest, WithoutTheProgramItDoesNotOpen) {
  place_.program = "/nowhere/nvidia-cuda-mps-control";
  const auto opened = Open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ENOENT);
}

TEST_F(SpaceTest, ItIsUsedByVgpusAndWhileItIsKept) {
  ASSERT_TRUE(Open());
  On([this] {
    EXPECT_FALSE(space_->Used());
    space_->Enter();
    EXPECT_TRUE(space_->Used());
    space_->Keep(true);
    space_->Leave();
    EXPECT_TRUE(space_->Used());
    EXPECT_EQ(space_->VGpus(), 0);
    space_->Keep(false);
    EXPECT_FALSE(space_->Used());
  });
}

TEST(SpaceStates, HaveNames) {
  EXPECT_STREQ(NameOf(SpaceState::kStarting), "starting");
  EXPECT_STREQ(NameOf(SpaceState::kReady), "ready");
  EXPECT_STREQ(NameOf(SpaceState::kFault), "fault");
  EXPECT_STREQ(NameOf(SpaceState::kClosing), "closing");
}

}  // namespace
}  // namespace tessera::server
