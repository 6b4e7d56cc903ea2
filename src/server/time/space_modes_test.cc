#include "server/time/space_modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/record/events.h"
#include "server/testing/space_gpu.h"

namespace tessera::server {
namespace {

using sched::SpaceMode;
using State = GateRecord::State;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
const sched::LatencyGoal kWithin20Ms{.percentile = 99, .time = 20 * kMillisecond};

// Programs that always work, at a speed that depends on how many do.
class SpaceModesTest : public SpaceGpuTest {
 protected:
  Result<void> SetGoal(VGpu& vgpu, const std::optional<sched::Goal>& goal) {
    return gpu_.Resize(vgpu, vgpu.spec.memory, vgpu.spec.compute, goal, Now());
  }
  // One of the space that works, with half of the SMs.
  Member& Busy(const char* name, const std::optional<sched::Goal>& goal = {}) {
    Member& member = Running(InSpaceOf(50));
    member.vgpu.spec.name = name;
    if (goal) EXPECT_TRUE(SetGoal(member.vgpu, goal));
    busy_.push_back(&member);
    return member;
  }
  bool Runs(const Member& member) const { return Open(member) && member.process.gate.state == State::kRunning; }
  long Running() const {
    return std::ranges::count_if(busy_, [this](const Member* member) { return Runs(*member); });
  }
  void Drive(Nanos time) {
    for (const Nanos end = now_ + time; now_ < end;) {
      Pass(kMillisecond);
      for (Member* member : busy_) {
        if (member->process.gate.state == State::kDraining) Drains(*member);
        if (member->process.gate.state == State::kParked) Works(*member);
      }
      const long running = Running();
      most_ = std::max(most_, running);
      for (Member* member : busy_) {
        if (!Runs(*member)) continue;
        member->process.page->submissions += running > 1 ? static_cast<std::uint64_t>(10 * beside_) : 20;
        member->process.page->reached_ns = now_;
      }
    }
  }
  // The most that ran at a time from now on.
  long MostDuring(Nanos time) {
    most_ = 0;
    Drive(time);
    return most_;
  }
  using SpaceGpuTest::Running;
  sched::SpaceChoice Choice() { return Report().choice; }
  SpaceModes::Report Report() { return gpu_.Time().Goals().Modes().ReportOf(kSpace); }
  std::vector<std::string> Told(std::uint64_t after) {
    std::vector<std::string> texts;
    for (const Event& event : events::After(after, 100).events) {
      if (event.type == EventType::kSpaceMode) texts.push_back(event.text);
    }
    return texts;
  }

  std::vector<Member*> busy_;
  double beside_ = 1.4;  // what one does at once, of what it does in turns
  long most_ = 0;
};

TEST_F(SpaceModesTest, WithoutAGoalNothingIsTried) {
  StartServer();
  Member& one = Busy("one");
  Busy("two");
  beside_ = 0.5;
  Drive(kSecond);
  const std::uint64_t epoch = one.process.page.Epoch();
  Drive(30 * kSecond);
  EXPECT_EQ(one.process.page.Epoch(), epoch) << "no order came";
  EXPECT_EQ(Running(), 2);
  EXPECT_EQ(Choice().tried_at, sched::SpaceChoice().tried_at);
  EXPECT_THAT(Report().why, IsEmpty());
}

TEST_F(SpaceModesTest, TheyRunAtOnceWhereThatIsFaster) {
  StartServer();
  Member& one = Busy("one", kWithin20Ms);
  Busy("two");
  const std::uint64_t before = events::Last();
  Drive(6 * kSecond);
  EXPECT_EQ(Choice().mode, SpaceMode::kAtOnce);
  EXPECT_NEAR(Choice().gain.value(), 1.4, 0.1);
  EXPECT_THAT(Report().why, HasSubstr("x of taking turns"));
  EXPECT_EQ(Running(), 2);
  EXPECT_EQ(one.Order(), wire::GateOrder::kOpen) << "the trial's bound is over";
  EXPECT_THAT(Told(before), IsEmpty());
}

TEST_F(SpaceModesTest, TheyTakeTurnsWhereThatIsFasterAndAnEventTellsIt) {
  StartServer();
  Busy("one", kWithin20Ms).vgpu.spec.uid = 1000;
  Busy("two");
  beside_ = 0.6;
  const std::uint64_t before = events::Last();
  Drive(6 * kSecond);
  EXPECT_EQ(Choice().mode, SpaceMode::kInTurns);
  EXPECT_NEAR(Choice().gain.value(), 0.6, 0.05);
  EXPECT_EQ(MostDuring(3 * kSecond), 1);
  ASSERT_EQ(Told(before).size(), 1u);
  EXPECT_THAT(Told(before)[0], AllOf(HasSubstr("space a runs in turns: at once is 0."), HasSubstr("x of that")));
  beside_ = 1.4;
  Drive(20 * kSecond);
  EXPECT_EQ(Choice().mode, SpaceMode::kAtOnce);
  EXPECT_EQ(Running(), 2);
}

TEST_F(SpaceModesTest, ByGatesItIsTheSame) {
  Busy("one", kWithin20Ms);
  Busy("two");
  ASSERT_FALSE(Steers());
  beside_ = 0.6;
  Drive(6 * kSecond);
  EXPECT_EQ(MostDuring(3 * kSecond), 1);
  beside_ = 1.4;
  Drive(20 * kSecond);
  EXPECT_EQ(Running(), 2);
}

TEST_F(SpaceModesTest, TheLastGoalTakesTheTurnsAlong) {
  StartServer();
  Member& one = Busy("one", kWithin20Ms);
  Busy("two");
  beside_ = 0.6;
  Drive(6 * kSecond);
  ASSERT_EQ(Choice().mode, SpaceMode::kInTurns);
  const std::uint64_t before = events::Last();
  ASSERT_TRUE(SetGoal(one.vgpu, {}));
  Drive(kSecond);
  EXPECT_EQ(Running(), 2);
  EXPECT_FALSE(gpu_.Time().Goals().Modes().Any());
  ASSERT_EQ(Told(before).size(), 1u);
  EXPECT_THAT(Told(before)[0], HasSubstr("space a runs at once: no vGPU has a goal"));
}

TEST_F(SpaceModesTest, AGoalThatIsMissedAtOnceIsKeptInTurns) {
  StartServer();
  Member& batch = Busy("batch");
  Member& serve = Busy("serve", sched::LatencyGoal{.percentile = 90, .time = 15 * kMillisecond});
  busy_ = {&batch};
  // Requests of 8 ms, which take three times as long beside the other one.
  Rests(serve);
  const auto request = [&] {
    Works(serve);
    for (double left = 8; left > 0;) {
      Drive(kMillisecond);
      if (serve.process.gate.state == State::kDraining) Drains(serve);
      if (serve.process.gate.state == State::kParked) Works(serve);
      if (!Runs(serve)) continue;
      left -= Runs(batch) ? 1.0 / 3 : 1;
      serve.process.page->submissions += 1;
      serve.process.page->reached_ns = now_;
    }
    Rests(serve);
    Drive(10 * kMillisecond);
  };
  for (const Nanos end = now_ + 6 * kSecond; now_ < end;) request();
  EXPECT_EQ(Choice().mode, SpaceMode::kInTurns);
  EXPECT_THAT(Report().why, HasSubstr("p90=15ms of serve would be missed at once"));
}

TEST_F(SpaceModesTest, ARestartOfTheTimeServerKeepsTheMode) {
  StartServer();
  Busy("one", kWithin20Ms);
  Busy("two");
  beside_ = 0.6;
  Drive(6 * kSecond);
  ASSERT_EQ(Choice().mode, SpaceMode::kInTurns);
  gpu_.Time().Restart(Now());
  EXPECT_EQ(MostDuring(3 * kSecond), 1);
  EXPECT_EQ(Choice().mode, SpaceMode::kInTurns);
}

TEST_F(SpaceModesTest, AMemberThatComesOrGoesIsNoHarm) {
  StartServer();
  Member& one = Busy("one", kWithin20Ms);
  Busy("two");
  beside_ = 0.6;
  Drive(1500 * kMillisecond);  // in the middle of a leg
  Member& three = Running(InSpaceOf(20));
  busy_.push_back(&three);
  Drive(15 * kSecond);
  EXPECT_EQ(Choice().mode, SpaceMode::kInTurns);
  EXPECT_EQ(MostDuring(kSecond), 1);
  busy_ = {&three};
  one.vgpu.removed = true;
  gpu_.Remove(one.vgpu, Now());
  Drive(kSecond);
  EXPECT_TRUE(Open(three));
  EXPECT_EQ(Choice().mode, SpaceMode::kAtOnce);
  EXPECT_FALSE(gpu_.Time().Goals().Modes().Any());
}

// A program's words in its page are claims.
TEST_F(SpaceModesTest, AnyClaimIsTaken) {
  StartServer();
  Member& one = Busy("one", kWithin20Ms);
  Busy("two");
  for (int n = 0; n < 60; ++n) {
    Drive(100 * kMillisecond);
    one.process.page->submissions = n % 2 == 0 ? UINT64_MAX : 0;
    one.process.page->reached_ns = n % 3 == 0 ? INT64_MIN : INT64_MAX;
  }
  ASSERT_TRUE(Choice().gain);
  EXPECT_GE(*Choice().gain, 0.25);
  EXPECT_LE(*Choice().gain, 4);
}

}  // namespace
}  // namespace tessera::server
