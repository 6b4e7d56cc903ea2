// A program that connects a second time, and what its first connection has of the daemon.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/testing/bystander.h"
#include "server/testing/context_events.h"
#include "server/testing/fake_control.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

const wire::Uuid kOnlyGpu = FakeDriver::UuidOf(0);

// A daemon that steers channels, and a process in a vGPU of a higher class than this test's program, under the kernel
// gate. It counts as active from its first context on.
class SecondSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.Make({.name = "high", .compute_priority = "2"});
    daemon_.Make({.name = "low", .compute_priority = "12"});
  }

  static void TellContext(FakeClient& client) {
    for (const auto& event : ContextEvents(kOwnClient)) {
      client.Send(wire::Object{.kind = static_cast<std::uint32_t>(event.kind),
                               .fd = event.fd,
                               .client = event.client,
                               .parent = event.parent,
                               .object = event.object,
                               .cls = event.cls,
                               .detail = event.detail});
    }
  }
  template <typename Ask>
  auto OnLoop(Ask ask) {
    return daemon_.Loop().Call(ask).value();
  }
  void GuardedContext(pid_t pid, const std::string& vgpu, std::uint32_t client) {
    OnLoop([&] {
      const std::vector<VgpuId> vgpus = {daemon_.Whole().VGpus().Find(vgpu)->id};
      for (const auto& event : ContextEvents(client))
        daemon_.Whole().Guests().Observe(pid, vgpus, event, MonotonicNow());
      return true;
    });
  }
  void NeighbourWorks() { GuardedContext(neighbour_.Pid(), "high", 0xc1d00002); }

  bool Known() {
    return OnLoop([&] { return daemon_.Whole().Channels().Knows(getpid(), 0); });
  }
  bool Told() {
    return OnLoop([&] { return !daemon_.Whole().Channels().Table().Groups(getpid(), 0).empty(); });
  }
  bool Frozen() {
    return OnLoop([&] { return control_->frozen.contains({kOwnClient, 10}); });
  }
  bool EverThawed() {
    return OnLoop([&] { return control_->thawed.contains(getpid()); });
  }
  // Until the daemon has seen the end of the connection.
  void EndOf(FakeClient& client) {
    client.Disconnect();
    OnLoop([] { return true; });
    FakeClient(daemon_.RunDir()).Hello("low", /*observer=*/true);  // accepted and read after that
  }
  FakeClient FirstSession() {
    FakeClient first = daemon_.Connect("low");
    TellContext(first);
    first.Send(wire::Wants{});
    first.Query(kOnlyGpu);
    return first;
  }

  static constexpr std::uint32_t kOwnClient = 0xc1d00001;
  FakeControl* control_ = nullptr;
  TestDaemon daemon_{TestDaemon::Setup{.control = [this] {
    auto control = std::make_unique<FakeControl>();
    control_ = control.get();
    return control;
  }}};
  const Bystander neighbour_;
};

TEST_F(SecondSessionTest, ThatEndsWithoutAnAttachThawsNothing) {
  FakeClient first = FirstSession();
  NeighbourWorks();
  ASSERT_TRUE(Frozen());
  FakeClient second(daemon_.RunDir());
  second.Hello("low");
  EndOf(second);
  EXPECT_TRUE(Frozen());
  EXPECT_FALSE(EverThawed());
  EXPECT_TRUE(Known());
}

TEST_F(SecondSessionTest, ThatAttachesAndEndsThawsNothing) {
  FakeClient first = FirstSession();
  NeighbourWorks();
  ASSERT_TRUE(Frozen());
  FakeClient second = daemon_.Connect("low");
  EndOf(second);
  EXPECT_TRUE(Frozen());
  EXPECT_FALSE(EverThawed());
  EXPECT_TRUE(Known());
  EndOf(first);
  EXPECT_TRUE(daemon_.Eventually([&] { return !Known(); })) << "nobody speaks for it now";
}

TEST_F(SecondSessionTest, OfAGuestOfTheKernelGateThawsNothing) {
  GuardedContext(getpid(), "low", kOwnClient);
  NeighbourWorks();
  ASSERT_TRUE(Frozen());
  FakeClient session(daemon_.RunDir());
  session.Hello("low");
  EndOf(session);
  EXPECT_TRUE(Frozen());
  EXPECT_FALSE(EverThawed());
  EXPECT_TRUE(Known());
}

// What it told of is forgotten when it has ended, not before.
TEST_F(SecondSessionTest, ThatTellsOfObjectsOnlyMakesNothingUnknown) {
  FakeClient session(daemon_.RunDir());
  session.Hello("low");
  TellContext(session);
  session.Query(kOnlyGpu);
  ASSERT_TRUE(Told());
  EndOf(session);
  EXPECT_TRUE(Told());
}

TEST_F(SecondSessionTest, WhatAProgramThatNeverAttachedToldIsForgottenAtItsEnd) {
  const pid_t program = fork();
  if (program == 0) {
    FakeClient session(daemon_.RunDir());
    session.Hello("low");
    TellContext(session);
    session.Query(kOnlyGpu);
    _exit(0);
  }
  waitpid(program, nullptr, 0);
  EXPECT_TRUE(daemon_.Eventually([&] {
    return OnLoop([&] {
      daemon_.Whole().Channels().Tick();
      return daemon_.Whole().Channels().Table().Groups(program, 0).empty();
    });
  }));
}

TEST_F(SecondSessionTest, InAnotherVGpuDoesNotLiftAnOperatorsFreeze) {
  FakeClient first = FirstSession();
  ASSERT_TRUE(daemon_.Api().Freeze(std::string("low"), true));
  ASSERT_TRUE(Frozen());
  FakeClient second = daemon_.Connect("high");
  EXPECT_TRUE(Frozen());
  EXPECT_FALSE(EverThawed());
}

}  // namespace
}  // namespace tessera::server
