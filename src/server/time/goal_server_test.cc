#include "server/time/goal_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "server/record/events.h"
#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = sched::Verdict::Kind;
constexpr Nanos kMs = kMillisecond;
const sched::LatencyGoal kLatency{.percentile = 99, .time = 20 * kMs};

class GoalServerTest : public SteeredGpuTest {
 protected:
  Result<void> Set(VGpu& vgpu, const std::optional<sched::Goal>& goal) {
    return gpu_.Resize(vgpu, vgpu.spec.memory, vgpu.spec.compute, goal, Now());
  }
  // A pause, and a burst of this length.
  void Burst(Member& member, Nanos length) {
    Pass(10 * kMs);
    Works(member);
    member.process.page->submissions += 8;
    for (Nanos left = length; left > 0; left -= kMs) Pass(std::min(left, kMs));
    Rests(member);
  }
  sched::GoalReport ReportOf(const VGpu& vgpu) { return gpu_.Time().Goals().ReportOf(vgpu, Now()).value(); }
  std::uint64_t Calls() const { return channels_.Calls().Counts().freezes + channels_.Calls().Counts().thaws; }
};

TEST_F(GoalServerTest, WithoutAGoalNothingIsAskedAndNothingComesOut) {
  Running(low_);
  EXPECT_FALSE(gpu_.Time().Goals().ReportOf(low_, Now()));
  ASSERT_TRUE(Set(low_, kLatency));
  EXPECT_TRUE(gpu_.Time().Goals().ReportOf(low_, Now()));
  EXPECT_FALSE(gpu_.Time().Goals().ReportOf(high_, Now()));
  ASSERT_TRUE(Set(low_, {}));
  EXPECT_FALSE(gpu_.Time().Goals().ReportOf(low_, Now()));
}

// Two of one class: the one with a latency goes first, and gives way.
TEST_F(GoalServerTest, ALatencyGoalMakesTheSlicesOfItsPeersShort) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Running(low_);
  ASSERT_TRUE(Becomes([&] { return control_->slices[busy.process.pid] > 5 * kMs; }));
  ASSERT_TRUE(Set(low_, kLatency));
  EXPECT_TRUE(Becomes([&] { return !Frozen(busy) && control_->slices[busy.process.pid] == 50 * kMicrosecond; }))
      << "nothing is known yet: it is as strict as can be without freezes";
  ASSERT_TRUE(Set(low_, {}));
  EXPECT_TRUE(Becomes([&] { return control_->slices[busy.process.pid] > 5 * kMs; })) << "as configured";
  EXPECT_FALSE(Frozen(busy));
}

TEST_F(GoalServerTest, ASpeedGoalIsARequestAndGoesWithIt) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Member& fast = Running(low_);
  ASSERT_TRUE(Set(low_, sched::SpeedGoal{80}));
  const auto ratio = [&] {
    return static_cast<double>(control_->slices[fast.process.pid]) /
           static_cast<double>(control_->slices[busy.process.pid]);
  };
  EXPECT_TRUE(Becomes([&] { return ratio() > 5; }));
  ASSERT_TRUE(Set(low_, {}));
  EXPECT_TRUE(Becomes([&] { return ratio() < 1.1; }));
}

TEST_F(GoalServerTest, OthersStandStillForAnAuditAndGoOnAfterIt) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Member& member = Resting(low_);
  ASSERT_TRUE(Set(low_, kLatency));
  Works(member);
  EXPECT_TRUE(Frozen(busy));
  Pass(8 * kMs);
  Rests(member);
  Pass(60 * kMs);
  EXPECT_FALSE(Frozen(busy));
  EXPECT_EQ(ReportOf(low_).solo_bursts, 1u);
  EXPECT_NEAR(static_cast<double>(ReportOf(low_).solo_median), 8e6, 0.2e6);
}

TEST_F(GoalServerTest, AnAuditedVGpuThatGoesReleasesTheOthers) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Member& member = Resting(low_);
  ASSERT_TRUE(Set(low_, kLatency));
  Works(member);
  ASSERT_TRUE(Frozen(busy));
  ASSERT_TRUE(Set(low_, {}));
  EXPECT_FALSE(Frozen(busy));
}

TEST_F(GoalServerTest, AnEventTellsOfAnotherVerdict) {
  Member& member = Resting(low_);
  low_.spec.name = "serve";
  low_.spec.uid = 1000;
  ASSERT_TRUE(Set(low_, sched::LatencyGoal{.percentile = 99, .time = 5 * kMs}));
  const std::uint64_t before = events::Last();
  for (int n = 0; n < 40; ++n) Burst(member, 30 * kMs);
  const auto told = events::After(before, 10).events;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type, EventType::kGoal);
  EXPECT_EQ(told[0].vgpu, "serve");
  EXPECT_EQ(told[0].owner, 1000u);
  EXPECT_THAT(told[0].text, AllOf(HasSubstr("p99=5ms: cannot: "), HasSubstr("the goal is 5 ms")));
  EXPECT_EQ(ReportOf(low_).verdict.kind, Kind::kCannot);
  EXPECT_EQ(ReportOf(low_).since_start.bursts(), 40u);
}

TEST_F(GoalServerTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  VGpu& peer = Another(12);
  peer.spec.name = "peer";
  ASSERT_TRUE(Set(peer, sched::SpeedGoal{60}));
  const auto refused = Set(low_, sched::SpeedGoal{50});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_THAT(refused.error().message, HasSubstr("break the goal speed=60% of vGPU peer"));
  EXPECT_FALSE(low_.spec.goal);
  EXPECT_FALSE(gpu_.Time().Goals().ReportOf(low_, Now()));
  VGpu fresh;
  fresh.id = 77;
  fresh.spec.goal = sched::SpeedGoal{50};
  EXPECT_EQ(gpu_.Add(fresh, Now()).error().code, ENOSPC);
  EXPECT_TRUE(Set(low_, sched::SpeedGoal{35})) << "nothing is left of the one that was refused";
}

TEST_F(GoalServerTest, AGoalThatAnEarlierDaemonHadNeedNotFit) {
  VGpu& peer = Another(12);
  Running(peer);
  ASSERT_TRUE(Set(peer, sched::SpeedGoal{60}));
  VGpu& old = others_.emplace_back();
  old.id = 77;
  old.spec.goal = sched::SpeedGoal{50};
  ASSERT_TRUE(gpu_.Add(old, Now(), /*restored=*/true));
  EXPECT_THAT(ReportOf(old).verdict.why, HasSubstr("not promised"));
  EXPECT_TRUE(gpu_.Resize(old, old.spec.memory, {.weight = 7}, old.spec.goal, Now())) << "it holds up no other change";
  EXPECT_THAT(ReportOf(old).verdict.why, HasSubstr("not promised"));
  ASSERT_TRUE(Set(peer, {}));
  ASSERT_TRUE(Set(old, sched::SpeedGoal{50}));
  EXPECT_THAT(ReportOf(old).verdict.why, IsEmpty());
}

TEST_F(GoalServerTest, ByGatesALatencyIsOnlyMeasured) {
  Member& member = Resting(low_);
  ASSERT_TRUE(Set(low_, kLatency));
  ASSERT_TRUE(Set(high_, sched::SpeedGoal{50}));
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  ASSERT_FALSE(Steers());
  EXPECT_THAT(ReportOf(low_).verdict.why, HasSubstr("needs channel control"));
  EXPECT_THAT(ReportOf(high_).verdict.why, HasSubstr("needs channel control"));
  Works(member);
  Pass(5 * kMs);
  Rests(member);
  EXPECT_EQ(ReportOf(low_).since_start.bursts(), 1u);
  channels_.Availability().EndTest({});
  gpu_.Time().Choose(Now());
  ASSERT_TRUE(Steers());
  EXPECT_THAT(ReportOf(low_).verdict.why, IsEmpty());
  EXPECT_EQ(ReportOf(low_).since_start.bursts(), 1u) << "it is the same goal";
}

TEST_F(GoalServerTest, AnotherWayHasTheTerms) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Running(low_);
  ASSERT_TRUE(Set(low_, kLatency));
  gpu_.Time().Restart(Now());
  EXPECT_TRUE(Becomes([&] { return control_->slices[busy.process.pid] == 50 * kMicrosecond; }));
}

TEST_F(GoalServerTest, ClassesAreNotPassedWhileTheyAreNumberedAnew) {
  Member& high = Running(high_);
  VGpu& middle = Another(3);
  Running(middle);
  Running(low_);
  const std::uint64_t before = Calls();
  ASSERT_TRUE(Set(low_, kLatency));
  ASSERT_TRUE(Set(low_, {}));
  EXPECT_EQ(Calls(), before);
  EXPECT_FALSE(Frozen(high));
}

// Due to it are 40 % and half of the rest; its request rises as it is slower, as far as its owner may.
TEST_F(GoalServerTest, TheRequestOfAUserStaysAtThePromise) {
  VGpu& peer = Another(12);
  Member& busy = Running(peer);
  Member& member = Resting(low_);
  for (const uid_t owner : {uid_t(123456), uid_t(0)}) {
    low_.spec.uid = owner;
    ASSERT_TRUE(Set(low_, sched::SpeedGoal{40}));
    for (int n = 0; n < 300; ++n) {
      Pass(10 * kMs);
      Works(member);
      member.process.page->submissions += 8;
      Pass(Frozen(busy) ? 10 * kMs : 60 * kMs);
      Rests(member);
    }
    const double ratio = static_cast<double>(control_->slices[member.process.pid]) /
                         static_cast<double>(control_->slices[busy.process.pid]);
    EXPECT_LT(ReportOf(low_).last_minute.Speed(), 0.35);
    if (owner != 0) {
      EXPECT_NEAR(ratio, 70.0 / 30, 0.1);
    } else {
      EXPECT_GT(ratio, 3);
    }
    ASSERT_TRUE(Set(low_, {}));
  }
}

// Whatever happens, nothing of it is left when the goals are gone.
TEST_F(GoalServerTest, AfterTheLastGoalAllIsAsConfigured) {
  std::vector<VGpu*> vgpus = {&high_, &low_, &Another(12), &Another(8)};
  std::vector<Member*> members;
  for (VGpu* vgpu : vgpus) {
    members.push_back(&Resting(*vgpu));
    members.push_back(&Resting(*vgpu));
  }
  const std::vector<std::optional<sched::Goal>> goals = {std::nullopt, kLatency,
                                                         sched::LatencyGoal{.percentile = 95, .time = kMs},
                                                         sched::SpeedGoal{30}, sched::SpeedGoal{60}};
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < 300; ++step) {
      Member& member = *members[random() % members.size()];
      VGpu& vgpu = *vgpus[random() % vgpus.size()];
      const unsigned act = random() % 20;
      if (act == 0) {
        (void)Set(vgpu, goals[random() % goals.size()]);
      } else if (act == 1) {
        (void)gpu_.Resize(vgpu, vgpu.spec.memory,
                          {.request_pct = static_cast<double>(random() % 30), .priority = vgpu.spec.compute.priority},
                          vgpu.spec.goal, Now());
      } else if (act == 2) {
        gpu_.Time().Restart(Now());
      } else if (act < 8) {
        Works(member);
        member.process.page->submissions += 3;
      } else if (act < 13) {
        Rests(member);
      } else {
        Pass(static_cast<Nanos>(random() % 40) * kMs);
      }
    }
    for (VGpu* vgpu : vgpus) {
      ASSERT_TRUE(gpu_.Resize(*vgpu, vgpu->spec.memory, {.priority = vgpu->spec.compute.priority}, {}, Now()));
      ASSERT_FALSE(gpu_.Time().Goals().ReportOf(*vgpu, Now()));
    }
    for (Member* member : members) Rests(*member);
    Pass(2 * kSecond);
    for (Member* member : members) ASSERT_FALSE(Frozen(*member)) << seed;
    Member& one = *members[2];
    Member& peer = *members[4];
    Works(one);
    Works(peer);
    const auto slice = [&](const Member& member) { return static_cast<double>(control_->slices[member.process.pid]); };
    ASSERT_TRUE(Becomes([&] { return std::abs(slice(one) - slice(peer)) <= 0.05 * slice(one); }))
        << seed << ": two of one class and weight have " << slice(one) << " and " << slice(peer);
    Works(*members[0]);
    ASSERT_TRUE(Frozen(one) && Frozen(peer)) << seed << ": classes are as configured, and strict";
    for (Member* member : members) Rests(*member);
    ASSERT_FALSE(control_->twice);
  }
}

}  // namespace
}  // namespace tessera::server
