#include "server/time/time_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/record/events.h"
#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using State = GateRecord::State;
using TimeControlTest = SteeredGpuTest;

// Before the first choice no way was passed over, and still the gates divide the time.
TEST_F(TimeControlTest, BeginsWithTheGates) {
  const std::vector<VGpu*> none;
  const TimeControl time(*loop_, 0, config_, channels_, none, {});
  EXPECT_THAT(time.Ways().WhyNot(Divider::kChannels), IsEmpty());
  EXPECT_EQ(time.Ways().Present(), Divider::kGates);
}

TEST_F(TimeControlTest, SaysWhyABetterWayWasPassedOver) {
  Member& unknown = Join(low_);
  Works(unknown);
  EXPECT_FALSE(FreezesChannels(gpu_.Time().Ways().Present()));
  EXPECT_EQ(gpu_.Time().Ways().Present(), Divider::kGates);
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), HasSubstr("not known"));
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kGates), IsEmpty());
  MakeContext(unknown);
  EXPECT_TRUE(FreezesChannels(gpu_.Time().Ways().Present()));
  EXPECT_EQ(gpu_.Time().Ways().Present(), Divider::kChannels);
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), IsEmpty());
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  EXPECT_FALSE(FreezesChannels(gpu_.Time().Ways().Present()));
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), HasSubstr("test is under way"));
}

TEST_F(TimeControlTest, FiguresGoOnFromOneWayToTheOther) {
  Member& low = Running(low_);
  Pass(10 * kMillisecond);
  const TimeControl::Figures before = gpu_.Time().FiguresOf(low_, Now());
  EXPECT_EQ(before.standing, Standing::kRunning);
  EXPECT_GE(before.usage.busy, 10 * kMillisecond);
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  ASSERT_FALSE(Steers());
  const TimeControl::Figures after = gpu_.Time().FiguresOf(low_, Now());
  EXPECT_GE(after.usage.busy, before.usage.busy);
  EXPECT_LE(after.usage.busy, before.usage.busy + kMillisecond);
  EXPECT_EQ(low.process.gate.state, State::kRunning) << "it has the token";
}

TEST_F(TimeControlTest, ABurstLastsFromTheFirstWorkOfAVGpuToItsLast) {
  const auto report = [this] { return low_.bursts.Report(); };
  Member& one = Running(low_);
  Member& other = Running(low_);
  Pass(2 * kMillisecond);
  Rests(one);
  EXPECT_EQ(report().count, 0u) << "the other works";
  Pass(8 * kMillisecond);
  Rests(other);
  EXPECT_EQ(report().count, 1u);
  EXPECT_GE(report().lengths.Sum(), 10 * kMillisecond);
  EXPECT_LT(report().lengths.Sum(), 11 * kMillisecond);
  Pass(kSecond);
  Works(one);
  Pass(kMillisecond);
  Rests(one);
  EXPECT_EQ(report().count, 2u);
  EXPECT_LT(report().lengths.Sum(), 13 * kMillisecond) << "what lies between them does not count";
  EXPECT_EQ(high_.bursts.Report().count, 0u);
}

TEST_F(TimeControlTest, TheTimeInWhichAHigherClassRunsCounts) {
  Member& low = Running(low_);
  Member& high = Running(high_);
  Pass(20 * kMillisecond);
  Rests(high);
  Pass(20 * kMillisecond);
  Rests(low);
  ASSERT_EQ(low_.bursts.Report().count, 1u);
  EXPECT_GE(low_.bursts.Report().lengths.Sum(), 40 * kMillisecond);
  EXPECT_FALSE(low_.bursts.Report().solo_p50);
  EXPECT_FALSE(high_.bursts.Report().solo_p50) << "the lower class had work, though it stood still";
  Pass(kSecond);
  Works(high);
  Rests(high);
  EXPECT_TRUE(high_.bursts.Report().solo_p50);
}

TEST_F(TimeControlTest, ATurnsEndIsNoBurstsEnd) {
  Member& one = Join(low_);
  Works(one);
  Member& other = Join(high_);
  Works(other);
  ASSERT_FALSE(Steers());
  const auto drains = [this](Member& member) {
    if (member.process.gate.state != State::kDraining) return false;
    gpu_.Time().Released(member.process, now_, member.process.page.Epoch(), Now());
    return true;
  };
  const auto drained = [&] {
    for (int ms = 0; ms < 1000 && one.process.gate.state != State::kDraining; ++ms) {
      if (drains(other)) Works(other);
      Pass(kMillisecond);
    }
    return drains(one);
  };
  ASSERT_TRUE(drained());
  Works(one);  // the rest waited at the gate
  ASSERT_TRUE(drained());
  Works(one);
  EXPECT_EQ(low_.bursts.Report().count, 0u);
  ASSERT_TRUE(drained());
  const Nanos length = low_.burst.End();
  Pass(2 * kMillisecond);
  ASSERT_EQ(low_.bursts.Report().count, 1u) << "nothing waited";
  EXPECT_EQ(low_.burst.End(), length);
  EXPECT_GT(low_.bursts.Report().lengths.Sum(), 50 * kMillisecond) << "three turns, and those of the other one";
  now_ += 10 * kMillisecond;  // the next one comes before the loop looks
  Works(one);
  ASSERT_TRUE(drained());
  now_ += 5 * kMillisecond;
  Works(one);
  EXPECT_EQ(low_.bursts.Report().count, 2u) << "a pause";
}

TEST_F(TimeControlTest, ABurstThatItsProgramDoesNotOutliveIsNotCounted) {
  const std::unique_ptr<Member> member = [this] {
    Running(low_);
    std::unique_ptr<Member> last = std::move(members_.back());
    members_.pop_back();
    return last;
  }();
  Pass(5 * kMillisecond);
  gpu_.Leave(member->process, Now());
  channels_.Forget(member->process.pid);
  Member& next = Running(low_);
  Pass(kMillisecond);
  Rests(next);
  EXPECT_EQ(low_.bursts.Report().count, 1u);
  EXPECT_LT(low_.bursts.Report().lengths.Sum(), 2 * kMillisecond);
}

// A program can make its GPU's time be divided in another way as often as it likes.
TEST_F(TimeControlTest, ChangesAreToldOnceASecondAndTheLastOneIsTold) {
  const std::uint64_t before = events::Last();
  const auto told = [&] {
    std::vector<std::string> texts;
    for (const Event& event : events::After(before, 100).events) {
      if (event.type == EventType::kControlChanged) texts.push_back(event.text);
    }
    return texts;
  };
  const auto choose = [&](bool tested) {
    if (tested) {
      channels_.Availability().EndTest({});
    } else {
      channels_.Availability().BeginTest();
    }
    gpu_.Time().Choose(Now());
  };
  MakeContext(Join(low_));
  Pass(2 * kSecond);
  gpu_.Time().Choose(Now());
  const std::size_t first = told().size();
  for (int n = 0; n < 10; ++n) {
    choose(false);
    choose(true);
  }
  choose(false);
  EXPECT_LE(told().size(), first + 1);
  Pass(2 * kSecond);
  gpu_.Time().Choose(Now());
  ASSERT_LE(told().size(), first + 2);
  EXPECT_THAT(told().back(), HasSubstr("test is under way"));
  choose(true);
}

TEST_F(TimeControlTest, ARestartStopsNobody) {
  Member& low = Running(low_);
  Member& high = Running(high_);
  gpu_.Time().Restart(Now());
  EXPECT_TRUE(Frozen(low));
  EXPECT_EQ(high.process.gate.state, State::kRunning);
  Rests(high);
  EXPECT_FALSE(Frozen(low));
}

// A process that is idle asks for no time, and one that waits is not idle.
TEST_F(TimeControlTest, AVGpuStandsAsItsProcessesDo) {
  Member& low = Join(low_);
  MakeContext(low);
  const auto standing = [&] { return gpu_.Time().FiguresOf(low_, Now()).standing; };
  EXPECT_EQ(standing(), Standing::kIdle);
  Works(low);
  EXPECT_EQ(standing(), Standing::kRunning);
  Running(high_);
  EXPECT_EQ(standing(), Standing::kWaiting);
  Rests(low);
  EXPECT_EQ(standing(), Standing::kIdle);
}

// Whatever keeps it off: its frozen channels, or its gate.
TEST_F(TimeControlTest, AProcessWithWorkWaitsWhileItsVGpuDoes) {
  Member& low = Running(low_);
  Member& idle = Join(low_);
  MakeContext(idle);
  Member& high = Running(high_);
  ASSERT_TRUE(Steers() && Frozen(low));
  Member& late = Join(low_);
  MakeContext(late);
  Works(late);
  ASSERT_EQ(late.process.gate.state, State::kWanting);
  const auto waited = [&](Member& member) { return member.process.work.waited.At(Now()) / kMillisecond; };
  Pass(10 * kMillisecond);
  Freeze(late.process, true);
  Pass(10 * kMillisecond);
  Rests(high);
  Pass(10 * kMillisecond);
  EXPECT_EQ(waited(low), 20) << "with its work, frozen";
  EXPECT_EQ(waited(late), 10) << "not while an operator has frozen it";
  EXPECT_EQ(waited(idle), 0);
  EXPECT_EQ(waited(high), 0);
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  ASSERT_FALSE(Steers());
  Works(high);
  ASSERT_EQ(high.process.gate.state, State::kWanting);
  Pass(10 * kMillisecond);
  EXPECT_EQ(waited(high), 10) << "at its gate";
}

}  // namespace
}  // namespace tessera::server
