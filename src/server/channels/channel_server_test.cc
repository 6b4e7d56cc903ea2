// Channels of MPS servers and their clients.
#include "server/channels/channel_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/testing/context_events.h"
#include "server/testing/fake_control.h"

namespace tessera::server {
namespace {

namespace abi = channel::abi;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = channel::ObjectEvent::Kind;

constexpr pid_t kServer = 600'000'000, kClient = 600'000'001, kOther = 600'000'002;  // beyond any that exists
constexpr std::uint32_t kSpace = 3;

class ChannelServerTest : public testing::Test {
 protected:
  static std::uint32_t ClientOf(pid_t pid) { return 0xc1d00000 + (pid & 0xffff); }
  void MakeContext(pid_t pid, std::uint32_t group_cls = abi::kChannelGroup) {
    for (const auto& event : ContextEvents(ClientOf(pid), 3, 10, group_cls)) Observe(pid, event);
  }
  void MakeChannel(pid_t pid, std::uint32_t handle) {
    Observe(pid, {Kind::kAlloc, 5, ClientOf(pid), 3, handle, abi::kAnyChannel, 0});
  }
  void Observe(pid_t pid, const channel::ObjectEvent& event) {
    channels_.Observe(pid, event, ChannelServer::Source::kShim, 0);
  }
  // A space with an MPS server and one client, and their contexts.
  void ServerAndClient(pid_t client) {
    MakeContext(kServer);
    MakeContext(client);
    channels_.SetServer(kSpace, kServer);
    Enter(client, kSpace);
  }
  // It has started.
  void Enter(pid_t client, std::uint32_t space) {
    channels_.EnterSpace(client, space);
    channels_.ClientWorks(client);
  }
  // A space whose MPS server has no client yet, and is frozen.
  void FrozenServer() {
    MakeContext(kServer);
    channels_.SetServer(kSpace, kServer);
    Freeze(kServer);
  }
  void Freeze(pid_t pid) { EXPECT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy)); }
  void Thaw(pid_t pid) { EXPECT_TRUE(channels_.Freezer().Thaw(0, {&pid, 1}, FreezeReason::kPolicy)); }
  bool Frozen(pid_t pid, std::uint32_t handle = 10) const { return control_->frozen.contains({ClientOf(pid), handle}); }
  const ChannelTable& Table() const { return channels_.Table(); }

  std::unique_ptr<FakeControl> owned_control_ = std::make_unique<FakeControl>();
  FakeControl* control_ = owned_control_.get();
  ChannelServer channels_{std::move(owned_control_), "", nullptr};
};

TEST_F(ChannelServerTest, TheTableKnowsServersAndTheirClients) {
  EXPECT_EQ(Table().ServerOf(kSpace), 0);
  EXPECT_EQ(Table().ServerOfClient(kClient), 0);
  Enter(kClient, kSpace);
  EXPECT_TRUE(Table().InSpace(kClient));
  EXPECT_EQ(Table().ServerOfClient(kClient), 0) << "the server is not known yet";
  channels_.SetServer(kSpace, kServer);
  EXPECT_EQ(Table().ServerOf(kSpace), kServer);
  EXPECT_EQ(Table().ServerOfClient(kClient), kServer);
  EXPECT_FALSE(Table().InSpace(kServer));
  channels_.SetServer(kSpace, 0);
  EXPECT_EQ(Table().ServerOfClient(kClient), 0);
  channels_.LeaveSpace(kClient);
  EXPECT_FALSE(Table().InSpace(kClient));
}

TEST_F(ChannelServerTest, TheServersGroupsAreItsClientsToo) {
  MakeContext(kServer);
  MakeContext(kClient);
  MakeContext(kOther);
  channels_.SetServer(kSpace, kServer);
  EXPECT_THAT(Table().Groups(kServer, 0), SizeIs(1));
  Enter(kClient, kSpace);
  Enter(kOther, kSpace + 1);
  const auto groups = Table().Groups(kServer, 0);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_GE(groups[0].fd, 0) << "the server's slice is set by its own file";
  EXPECT_EQ(groups[1].client, ClientOf(kClient));
  EXPECT_EQ(groups[1].fd, -1);
  channels_.LeaveSpace(kClient);
  EXPECT_THAT(Table().Groups(kServer, 0), SizeIs(1));
}

TEST_F(ChannelServerTest, AClientComputesNothingByItself) {
  MakeContext(kServer);
  MakeContext(kClient);
  EXPECT_TRUE(channels_.Knows(kClient, 0));
  channels_.SetServer(kSpace, kServer);
  Enter(kClient, kSpace);
  EXPECT_FALSE(channels_.Knows(kClient, 0));
  EXPECT_TRUE(channels_.Knows(kServer, 0));
  Freeze(kClient);
  EXPECT_THAT(control_->frozen, IsEmpty()) << "gates stop it";
  EXPECT_EQ(channels_.Freezer().StatusOf(kClient, 0).reasons, FreezeReason::kNone);
}

// A freeze of its channels alone once left a client of the user's own MPS hanging, and the server with a fault (H100).
TEST_F(ChannelServerTest, NeitherDoesAClientOfAServerThatIsNoSpaces) {
  MakeContext(kClient, abi::kBorrowedGroup);
  EXPECT_FALSE(channels_.Knows(kClient, 0));
  Freeze(kClient);
  EXPECT_THAT(control_->frozen, IsEmpty()) << "its gate stops it";
}

TEST_F(ChannelServerTest, AFreezeOfTheServerTakesAllOffInOneCall) {
  ServerAndClient(kClient);
  Freeze(kServer);
  EXPECT_TRUE(Frozen(kServer));
  EXPECT_TRUE(Frozen(kClient));
  EXPECT_EQ(control_->Counts().freezes, 1u);
  Thaw(kServer);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_EQ(control_->Counts().thaws, 1u);
}

TEST_F(ChannelServerTest, WhatAClientMakesInAFrozenSpaceIsFrozen) {
  FrozenServer();
  Enter(kClient, kSpace);
  MakeContext(kClient);
  EXPECT_TRUE(Frozen(kClient));
  MakeChannel(kClient, 11);
  EXPECT_TRUE(Frozen(kClient, 11));
  MakeContext(kOther);
  EXPECT_FALSE(Frozen(kOther));
  Enter(kOther, kSpace);  // with channels that it had before
  EXPECT_TRUE(Frozen(kOther));
  EXPECT_FALSE(control_->twice);
  Thaw(kServer);
  EXPECT_THAT(control_->frozen, IsEmpty());
}

// While the driver made its context, a client whose space was frozen and thawed was seen to wait for ever.
TEST_F(ChannelServerTest, ASpaceGoesOnWhileAClientStarts) {
  FrozenServer();
  EXPECT_TRUE(Frozen(kServer));
  channels_.EnterSpace(kClient, kSpace);
  EXPECT_FALSE(Frozen(kServer));
  EXPECT_EQ(channels_.Freezer().StatusOf(kServer, 0).frozen_since, 0);
  MakeContext(kClient);
  Thaw(kServer);
  Freeze(kServer);
  EXPECT_THAT(control_->frozen, IsEmpty());
  channels_.ClientWorks(kClient);
  EXPECT_TRUE(Frozen(kServer));
  EXPECT_TRUE(Frozen(kClient));
  EXPECT_NE(channels_.Freezer().StatusOf(kServer, 0).frozen_since, 0);
  channels_.ClientWorks(kClient);  // said twice
  EXPECT_FALSE(control_->twice);
  Thaw(kServer);
  EXPECT_THAT(control_->frozen, IsEmpty());
}

TEST_F(ChannelServerTest, AnOperatorsFreezeDoesNotWaitForAStart) {
  FrozenServer();
  channels_.EnterSpace(kClient, kSpace);
  const pid_t server = kServer;
  EXPECT_TRUE(channels_.Freezer().Freeze(0, {&server, 1}, FreezeReason::kOperator));
  EXPECT_TRUE(Frozen(kServer));
}

TEST_F(ChannelServerTest, AClientThatEndsBeforeItWorksHasStarted) {
  FrozenServer();
  channels_.EnterSpace(kClient, kSpace);
  channels_.LeaveSpace(kClient);
  EXPECT_TRUE(Frozen(kServer));
}

TEST_F(ChannelServerTest, WhatAClientFreesIsForgotten) {
  ServerAndClient(kClient);
  Freeze(kServer);
  Observe(kClient, {.kind = Kind::kFree, .fd = 5, .client = ClientOf(kClient), .object = 10});
  control_->frozen.erase({ClientOf(kClient), 10});
  MakeChannel(kClient, 10);  // another one, with the handle of the first
  EXPECT_TRUE(Frozen(kClient));
  EXPECT_TRUE(Frozen(kServer));
}

// Another process's channels, perhaps of another user.
TEST_F(ChannelServerTest, ClaimsOfAClientToAnothersChannelsAreNotBelieved) {
  ServerAndClient(kClient);
  Enter(kOther, kSpace);
  const std::uint32_t neighbour = 0xc1d0ffff;
  control_->foreign.insert(neighbour);
  for (const auto& event : ContextEvents(neighbour)) Observe(kOther, event);
  Freeze(kServer);
  EXPECT_TRUE(Frozen(kServer));
  EXPECT_TRUE(Frozen(kClient));
  EXPECT_FALSE(control_->frozen.contains({neighbour, 10}));
}

// The server is steered by its own channels; those of a client are claims, and have no slice.
TEST_F(ChannelServerTest, AServerWithoutChannelsOfItsOwnIsNotKnown) {
  MakeContext(kClient);
  channels_.SetServer(kSpace, kServer);
  Enter(kClient, kSpace);
  EXPECT_FALSE(channels_.Knows(kServer, 0));
  MakeContext(kServer);
  EXPECT_TRUE(channels_.Knows(kServer, 0));
}

// It may go on, and no later event would thaw it.
TEST_F(ChannelServerTest, WhoLeavesAFrozenSpaceAndLivesIsThawed) {
  const pid_t living = getpid();
  ServerAndClient(living);
  Freeze(kServer);
  ASSERT_TRUE(Frozen(living));
  channels_.LeaveSpace(living);
  EXPECT_FALSE(Frozen(living));
  EXPECT_TRUE(Frozen(kServer));
  Enter(living, kSpace);
  EXPECT_TRUE(Frozen(living));
  EXPECT_FALSE(control_->twice);
}

// The driver has ended its channels; a call for them would fail.
TEST_F(ChannelServerTest, WhoLeavesByItsEndCostsNoCall) {
  ServerAndClient(kClient);
  Freeze(kServer);
  channels_.LeaveSpace(kClient);
  EXPECT_EQ(control_->Counts().thaws, 0u);
}

TEST_F(ChannelServerTest, TheSameServerAgainIsNoNews) {
  FrozenServer();
  channels_.SetServer(kSpace, kServer);
  channels_.Tick();
  EXPECT_TRUE(Frozen(kServer));
  EXPECT_EQ(channels_.Freezer().StatusOf(kServer, 0).reasons, FreezeReason::kPolicy);
}

// As other processes that end: what is noted of it must not become that of the next process with its pid.
TEST_F(ChannelServerTest, AServerThatEndedIsForgotten) {
  FrozenServer();
  channels_.SetServer(kSpace, 0);
  channels_.Tick();
  EXPECT_FALSE(channels_.Knows(kServer, 0));
  EXPECT_EQ(channels_.Freezer().StatusOf(kServer, 0).reasons, FreezeReason::kNone);
}

TEST_F(ChannelServerTest, SlicesAreTheServers) {
  MakeContext(kServer);
  channels_.SetServer(kSpace, kServer);
  EXPECT_TRUE(channels_.SetSlice(0, kServer, kMillisecond));
  EXPECT_EQ(control_->slices[kServer], kMillisecond);
}

}  // namespace
}  // namespace tessera::server
