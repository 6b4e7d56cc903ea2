#include "channel/control/process_objects.h"

#include <gtest/gtest.h>

#include "channel/control/nvidia_control.h"
#include "channel/testing/fake_rm.h"

namespace tessera::channel {
namespace {

using Source = ProcessObjects::Source;
using Kind = ObjectEvent::Kind;

constexpr GpuUuid kGpuUuid = {1, 2, 3};
constexpr int kProcess = 7, kNeighbour = 8, kFile = 5;
constexpr std::uint32_t kClient = 0xc1d00001, kNeighboursClient = 0xc1d00002, kGroup = 3;

class ProcessObjectsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto control = OpenNvidiaControl({kGpuUuid}, rm_.System());
    ASSERT_TRUE(control) << control.error().Text();
    control_ = std::move(*control);
    rm_.MakeGroup(kProcess, kFile, kClient, kGroup, abi::kEngineGraphics, 0, {10});
    rm_.MakeGroup(kNeighbour, kFile, kNeighboursClient, kGroup, abi::kEngineGraphics, 0, {10});
  }
  // Says that the process made a client with a device, a group and a channel.
  void Tell(std::uint32_t client, Source source, std::uint32_t group = kGroup) {
    objects_.Apply({Kind::kAlloc, kFile, client, 0, client, abi::kRootClient, 0}, source);
    objects_.Apply({Kind::kAlloc, kFile, client, client, 2, abi::kDevice, 0}, source);
    objects_.Apply({Kind::kAlloc, kFile, client, 2, group, abi::kChannelGroup, abi::kEngineGraphics}, source);
    objects_.Apply({Kind::kAlloc, kFile, client, group, 10, abi::kAnyChannel, 0}, source);
  }
  bool Verify() { return objects_.Verify(*control_, kProcess, kProcess); }

  FakeRm rm_{{{.id = 0x100, .device = 0, .subdevice = 0, .uuid = kGpuUuid}}};
  std::unique_ptr<Control> control_;
  ProcessObjects objects_;
};

TEST_F(ProcessObjectsTest, AClaimIsTrueIfTheProcesssFileAnswersForTheClient) {
  Tell(kClient, Source::kShim);
  EXPECT_TRUE(Verify());
  EXPECT_EQ(objects_.TargetOn(*control_, 0, kProcess, kProcess).groups.size(), 1u);
}

TEST_F(ProcessObjectsTest, AClaimToANeighboursChannelsIsDropped) {
  Tell(kClient, Source::kShim);
  Tell(kNeighboursClient, Source::kShim);
  EXPECT_TRUE(Verify());
  const Target target = objects_.TargetOn(*control_, 0, kProcess, kProcess);
  ASSERT_EQ(target.groups.size(), 1u);
  EXPECT_EQ(target.groups[0].client, kClient);
}

TEST_F(ProcessObjectsTest, AProgramThatClaimsAgainAndAgainIsRefused) {
  for (std::uint32_t group = 100; group < 400 && !objects_.Refused(); ++group) {
    Tell(kNeighboursClient, Source::kShim, group);
    Verify();
  }
  EXPECT_TRUE(objects_.Refused());
  EXPECT_FALSE(Verify());
  EXPECT_EQ(objects_.Table().Channels(), 0u);
}

TEST_F(ProcessObjectsTest, ChannelsWithoutAGroupCannotBeProvedByThemselves) {
  objects_.Apply({Kind::kAlloc, kFile, kClient, 0, kClient, abi::kRootClient, 0}, Source::kShim);
  objects_.Apply({Kind::kAlloc, kFile, kClient, kClient, 2, abi::kDevice, 0}, Source::kShim);
  objects_.Apply({Kind::kAlloc, kFile, kClient, 2, 10, abi::kAnyChannel, 0}, Source::kShim);
  EXPECT_FALSE(Verify());
}

TEST_F(ProcessObjectsTest, WhereFilesCannotBeBorrowedClaimsAreBelieved) {
  rm_.ForbidBorrowing();
  Tell(kClient, Source::kShim);
  EXPECT_TRUE(Verify());
}

TEST_F(ProcessObjectsTest, WhatTheWatchSawNeedsNoProofUntilTheShimClaims) {
  Tell(kNeighboursClient, Source::kWatch);
  EXPECT_TRUE(Verify()) << "the watch does not lie";
  objects_.Apply({Kind::kAlloc, kFile, kNeighboursClient, kGroup, 11, abi::kAnyChannel, 0}, Source::kShim);
  Verify();
  EXPECT_EQ(objects_.Table().Channels(), 0u) << "the claim made the rest doubtful";
}

TEST_F(ProcessObjectsTest, OnceTheKernelGateTellsNobodyElseIsAsked) {
  Tell(kNeighboursClient, Source::kShim);
  Tell(kClient, Source::kGuard);
  Tell(kNeighboursClient, Source::kShim);
  Tell(kNeighboursClient, Source::kWatch);
  EXPECT_TRUE(Verify());
  EXPECT_EQ(objects_.Table().Channels(), 1u);
}

TEST_F(ProcessObjectsTest, RestoredEventsProveNothingOfClaims) {
  Tell(kClient, Source::kGuard);
  ProcessObjects next;
  next.Restore(objects_.Table().Events());
  EXPECT_EQ(next.Table().Groups(0), objects_.Table().Groups(0));
  EXPECT_TRUE(next.Verify(*control_, kProcess, kProcess));
  objects_ = {};
  Tell(kNeighboursClient, Source::kShim);
  objects_.Restore({});
  Verify();
  EXPECT_EQ(objects_.Table().Channels(), 0u);
}

}  // namespace
}  // namespace tessera::channel
