#include "server/time/space_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sched/shares/admission.h"
#include "server/testing/space_gpu.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;
using testing::HasSubstr;
using testing::IsEmpty;

using SpaceServerTest = SpaceGpuTest;

TEST_F(SpaceServerTest, MembersRunAtTheSameTime) {
  StartServer();
  Member& one = Running(InSpaceOf(50));
  Member& two = Running(InSpaceOf(50));
  EXPECT_TRUE(Steers());
  EXPECT_TRUE(Open(one));
  EXPECT_TRUE(Open(two));
  Pass(kSecond);
  EXPECT_TRUE(Open(one));
  EXPECT_TRUE(Open(two));
}

TEST_F(SpaceServerTest, MembersThatDoNotFitTakeTurns) {
  StartServer();
  Member& one = Running(InSpaceOf(60));
  Member& two = Running(InSpaceOf(60));
  EXPECT_TRUE(Open(one));
  EXPECT_FALSE(Open(two));
  EXPECT_EQ(FiguresOf(two.vgpu).standing, Standing::kWaiting);
  ASSERT_TRUE(Becomes([&] { return one.process.gate.state == State::kDraining; }));
  EXPECT_FALSE(Open(two)) << "before the other has drained";
  Drains(one);
  EXPECT_TRUE(Open(two));
}

TEST_F(SpaceServerTest, TheSliceIsTheServers) {
  StartServer();
  Member& one = Running(InSpaceOf(50));
  Member& two = Running(InSpaceOf(50));
  Member& low = Running(low_);
  ASSERT_TRUE(Change(low_, {}));
  EXPECT_TRUE(HasSlice(low, 20 * kMillisecond)) << "two compete, not three";
  EXPECT_TRUE(Becomes([&] { return control_->slices[kServer] == 20 * kMillisecond; }));
  EXPECT_EQ(FiguresOf(one.vgpu).slice, 20 * kMillisecond);
  EXPECT_FALSE(control_->slices.contains(one.process.pid));
  EXPECT_FALSE(control_->slices.contains(two.process.pid));
}

TEST_F(SpaceServerTest, TheGreatestWeightIsTheSpaces) {
  StartServer();
  Running(InSpaceOf(50, {.weight = 50}));
  Running(InSpaceOf(50, {.weight = 300}));
  Member& plain = Running(*Add({.weight = 100}));
  EXPECT_TRUE(HasSlice(plain, 10 * kMillisecond));
  EXPECT_TRUE(Becomes([&] { return control_->slices[kServer] == 30 * kMillisecond; }));
}

TEST_F(SpaceServerTest, AHigherClassStopsTheServerAndItsClients) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Member& two = Running(InSpaceOf(50, {.priority = 12}));
  Member& high = Resting(high_);
  EXPECT_FALSE(ServerFrozen());
  Works(high);
  EXPECT_TRUE(ServerFrozen());
  for (const Member* client : {&one, &two}) {
    EXPECT_TRUE(Frozen(*client, 10));
    EXPECT_TRUE(Frozen(*client, 11));
    EXPECT_FALSE(Frozen(*client, 20)) << "its copies go on";
    EXPECT_TRUE(Open(*client)) << "what it submits waits on the GPU";
    EXPECT_EQ(FiguresOf(client->vgpu).standing, Standing::kWaiting);
  }
  EXPECT_EQ(control_->Counts().freezes, 1u);
  Rests(high);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(control_->twice);
  EXPECT_EQ(FiguresOf(one.vgpu).standing, Standing::kRunning);
}

TEST_F(SpaceServerTest, TheBestClassIsTheSpaces) {
  StartServer();
  Member& low = Running(low_);  // 12
  Member& poor = Running(InSpaceOf(50, {.priority = 14}));
  EXPECT_TRUE(ServerFrozen());
  InSpaceOf(50, {.priority = 3});
  EXPECT_FALSE(ServerFrozen()) << "the space has another class now";
  EXPECT_TRUE(Frozen(low));
  Rests(poor);
  EXPECT_FALSE(Frozen(low));
}

TEST_F(SpaceServerTest, ASpaceWithoutWorkCostsNoCall) {
  StartServer();
  Member& one = Resting(InSpaceOf(50, {.priority = 12}));
  Member& high = Running(high_);
  EXPECT_EQ(control_->Counts().freezes, 0u);
  Works(one);
  EXPECT_TRUE(ServerFrozen());
  EXPECT_TRUE(Frozen(one));
  Rests(one);
  Rests(high);
  EXPECT_THAT(control_->frozen, IsEmpty());
}

TEST_F(SpaceServerTest, TimeInASpaceStandsStillWithIt) {
  StartServer();
  Member& one = Running(InSpaceOf(60, {.priority = 12}));
  Member& two = Running(InSpaceOf(60, {.priority = 12}));
  Pass(kMillisecond);
  ASSERT_TRUE(Open(one));
  Member& high = Running(high_);
  const Nanos busy = FiguresOf(one.vgpu).usage.busy;
  Pass(10 * kSecond);
  EXPECT_TRUE(Open(one)) << "its turn is not over";
  EXPECT_LT(FiguresOf(one.vgpu).usage.busy - busy, kMillisecond) << "and it did not use it";
  Rests(high);
  EXPECT_TRUE(Open(one));
  EXPECT_TRUE(Becomes([&] { return one.process.gate.state == State::kDraining; })) << "it goes on";
  Drains(one);
  EXPECT_TRUE(Open(two));
}

TEST_F(SpaceServerTest, ALimitHoldsInside) {
  StartServer();
  Member& slow = Running(InSpaceOf(50, {.limit_pct = 20}));
  Member& free = Running(InSpaceOf(50));
  ASSERT_TRUE(Becomes([&] { return slow.process.gate.state == State::kDraining; }));
  Drains(slow);
  EXPECT_TRUE(Open(free));
  EXPECT_THAT(control_->frozen, IsEmpty());
  Works(slow);
  EXPECT_EQ(FiguresOf(slow.vgpu).standing, Standing::kWaiting);
  EXPECT_TRUE(Becomes([&] { return Open(slow); }));
  EXPECT_LE(FiguresOf(slow.vgpu).usage.window_pct, 20.5);
}

// Of a space that has half of the GPU by its slice, 40 % of the GPU's time is 80 % of the space's.
TEST_F(SpaceServerTest, ALimitIsAPartOfTheGpusTime) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.limit_pct = 40}));
  const auto share = [&] {  // of the space's time
    Nanos before = 0;
    for (int i = 0; i < 3000; ++i) {
      if (i == 1000) before = FiguresOf(one.vgpu).usage.busy;
      Pass(kMillisecond);
      if (one.process.gate.state == State::kDraining) Drains(one);
      if (one.process.gate.state == State::kParked) Works(one);
    }
    return static_cast<double>(FiguresOf(one.vgpu).usage.busy - before) / (2 * kSecond);
  };
  EXPECT_NEAR(share(), 0.4, 0.03);
  Running(*Add({}));
  EXPECT_NEAR(share(), 0.8, 0.03);
}

// While it waits for its limit, its space has no work, and another one that has a limit has the GPU alone.
TEST_F(SpaceServerTest, ALimitOutsideHoldsBesideAMemberAtItsLimit) {
  StartServer();
  Member& inside = Running(InSpaceOf(50, {.limit_pct = 10}));
  Member& plain = Running(*Add({.limit_pct = 30}));
  Nanos together = 0, alone = 0;  // so long the plain one may execute
  for (int i = 0; i < 4000; ++i) {
    Pass(kMillisecond);
    if (inside.process.gate.state == State::kDraining) Drains(inside);
    if (inside.process.gate.state == State::kParked) Works(inside);
    if (i < 1000 || Frozen(plain)) continue;
    (Open(inside) ? together : alone) += kMillisecond;
  }
  const double part = static_cast<double>(together / 2 + alone) / (3 * kSecond);
  EXPECT_LT(part, 0.32);
  EXPECT_GT(part, 0.25);
}

TEST_F(SpaceServerTest, RequestsFitSideBySide) {
  VGpu* one = Add(InSpace(50, {.request_pct = 60}));
  ASSERT_NE(one, nullptr);
  EXPECT_NE(Add(InSpace(50, {.request_pct = 60})), nullptr) << "side by side";
  EXPECT_EQ(Add(InSpace(50, {.request_pct = 60})), nullptr);
  EXPECT_EQ(Add({.request_pct = 60}), nullptr);
  EXPECT_THAT(refusal_.message, HasSubstr("does not fit"));
  EXPECT_NE(Add({.request_pct = 40}), nullptr);
  // The refusals left nothing behind.
  EXPECT_TRUE(Change(*one, InSpace(50, {.request_pct = 50})));
  EXPECT_FALSE(Change(*one, InSpace(50, {.request_pct = 70})));
}

TEST_F(SpaceServerTest, ASpaceThatWasRefusedLeavesNothingBehind) {
  ASSERT_NE(Add({.request_pct = 60}), nullptr);
  EXPECT_EQ(Add(InSpace(50, {.request_pct = 60})), nullptr);
  EXPECT_EQ(Add(InSpace(0)), nullptr);
  EXPECT_EQ(refusal_.code, ERANGE);
  EXPECT_NE(Add({.request_pct = 40}), nullptr);
}

TEST_F(SpaceServerTest, TheLastMemberTakesTheSpacesRequestAlong) {
  VGpu* one = Add(InSpace(50, {.request_pct = 80}));
  VGpu* two = Add(InSpace(50, {.request_pct = 30}));
  gpu_.Remove(*one, Now());
  EXPECT_EQ(Add({.request_pct = 75}), nullptr);
  EXPECT_NE(Add({.request_pct = 60}), nullptr);
  gpu_.Remove(*two, Now());
  EXPECT_NE(Add({.request_pct = 40}), nullptr);
}

TEST_F(SpaceServerTest, WhoIsRemovedStaysClosedAndTheOthersGoOn) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Member& two = Running(InSpaceOf(50, {.priority = 12}));
  gpu_.Remove(one.vgpu, Now());
  EXPECT_FALSE(Open(one));
  EXPECT_TRUE(Open(two));
  Works(one);
  Rests(one);
  Drains(one);
  EXPECT_FALSE(Open(one));
  Rests(two);
  Running(high_);
  EXPECT_FALSE(ServerFrozen()) << "nothing works in the space";
  gpu_.Remove(two.vgpu, Now());
  EXPECT_FALSE(ServerFrozen());
}

TEST_F(SpaceServerTest, WhoLeavesDoesNotCountAnyMore) {
  StartServer();
  Member& one = Running(InSpaceOf(60, {.priority = 12}));
  Member& two = Running(InSpaceOf(60, {.priority = 12}));
  gpu_.Leave(one.process, Now());
  EXPECT_TRUE(Open(two));
  gpu_.Leave(two.process, Now());
  Running(high_);
  EXPECT_FALSE(ServerFrozen());
  gpu_.Join(one.vgpu, one.process, 0, 1, Now());
  gpu_.Join(two.vgpu, two.process, 0, 1, Now());
}

TEST_F(SpaceServerTest, AnotherServerIsSteeredInItsPlace) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Running(high_);
  ASSERT_TRUE(ServerFrozen());
  StartServer(kServer + 1);
  EXPECT_TRUE(ServerFrozen(kServer + 1));
  EXPECT_EQ(FiguresOf(one.vgpu).standing, Standing::kWaiting);
}

TEST_F(SpaceServerTest, WithoutAServerTokensDivideTheTime) {
  Member& one = Running(InSpaceOf(50));
  Member& two = Running(InSpaceOf(50));
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), HasSubstr("MPS server of space a is not known"));
  channels_.SetServer(kSpace, kServer);
  gpu_.Time().ChannelsChanged(0, Now());
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), HasSubstr("the channels of MPS server"));
  EXPECT_TRUE(Open(one));
  EXPECT_TRUE(Open(two));
  StartServer();
  EXPECT_TRUE(Steers());
  EXPECT_EQ(one.process.gate.state, State::kRunning);
  EXPECT_EQ(two.process.gate.state, State::kRunning);
  EndServer();
  EXPECT_FALSE(Steers());
}

TEST_F(SpaceServerTest, AServerThatGoesLeavesNoFreezeToTheNextOnes) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Member& high = Running(high_);
  ASSERT_TRUE(ServerFrozen());
  EndServer();
  Rests(high);
  StartServer(kServer + 1);
  EXPECT_TRUE(Steers());
  EXPECT_FALSE(ServerFrozen(kServer + 1));
  EXPECT_EQ(FiguresOf(one.vgpu).standing, Standing::kRunning);
}

TEST_F(SpaceServerTest, AHeldMemberStandsAtItsGateAndTheOtherGoesOn) {
  StartServer();
  Member& one = Running(InSpaceOf(50));
  Member& two = Running(InSpaceOf(50));
  Freeze(one.process, true);
  EXPECT_FALSE(Open(one));
  EXPECT_TRUE(Open(two));
  EXPECT_THAT(control_->frozen, IsEmpty());
  Drains(one);
  Works(one);
  EXPECT_FALSE(Open(one));
  Freeze(one.process, false);
  EXPECT_TRUE(Open(one));
}

TEST_F(SpaceServerTest, WhereOnlyHeldOnesWorkTheSpaceRests) {
  StartServer();
  Member& low = Running(low_);
  Member& one = Running(InSpaceOf(50, {.priority = 3}));
  ASSERT_TRUE(Frozen(low));
  Freeze(one.process, true);
  Drains(one);
  EXPECT_FALSE(Frozen(low));
  Freeze(one.process, false);
}

TEST_F(SpaceServerTest, NewChannelsOfAClientGetASlice) {
  StartServer();
  Member& one = Running(InSpaceOf(50));
  Running(*Add({}));
  ASSERT_TRUE(Becomes([&] { return control_->slices.contains(kServer); }));
  control_->slices.clear();
  channels_.Observe(one.process.pid,
                    {channel::ObjectEvent::Kind::kAlloc, 5, ClientOf(one), kGroup, 12, channel::abi::kAnyChannel, 0},
                    kShim, Now());
  EXPECT_TRUE(Becomes([&] { return control_->slices.contains(kServer); }));
}

TEST_F(SpaceServerTest, AfterTheSealNoGateChanges) {
  StartServer();
  Member& one = Running(InSpaceOf(60));
  Member& two = Running(InSpaceOf(60));
  gpu_.Time().Seal();
  Pass(kSecond);
  EXPECT_TRUE(Open(one));
  EXPECT_FALSE(Open(two));
}

TEST_F(SpaceServerTest, TwoSpacesAreTwoEntities) {
  StartServer();
  StartServer(kServer + 1, kSpace + 1);
  Member& one = Running(InSpaceOf(100));
  Member& two = Running(*Add(InSpace(100, {}, kSpace + 1)));
  EXPECT_TRUE(Open(one));
  EXPECT_TRUE(Open(two)) << "slices divide the time";
  EXPECT_TRUE(Becomes([&] { return control_->slices[kServer] > 0 && control_->slices[kServer + 1] > 0; }));
  Running(high_);
  EXPECT_FALSE(ServerFrozen(kServer + 2));
}

// A packing that is looked for anew may be higher than the one that was kept: docs/scheduler.md.
TEST_F(SpaceServerTest, AMixThatWouldNotBeAdmittedAgainSurvivesARestart) {
  StartServer();
  InSpaceOf(96, {.request_pct = 59});
  VGpu& narrow = InSpaceOf(8, {.request_pct = 38});
  Member& member = Running(InSpaceOf(84, {.request_pct = 38}));
  ASSERT_TRUE(Change(narrow, InSpace(8, {.request_pct = 24})));
  EXPECT_GT(sched::TimeNeeded({InSpace(96, {.request_pct = 59}), narrow.spec.compute, member.vgpu.spec.compute}), 100);
  gpu_.Time().Restart(Now());
  EXPECT_TRUE(Becomes([&] { return Open(member); }));
}

}  // namespace
}  // namespace tessera::server
