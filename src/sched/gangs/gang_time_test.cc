#include "sched/gangs/gang_time.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using Gpus = std::vector<std::vector<GangPart>>;
using Ids = std::set<VgpuId>;

// vGPU 10 * n + g is the part of job n on GPU g.
GangPart Part(VgpuId id, GangId gang, bool active = true) { return {.vgpu = id, .gang = gang, .active = active}; }
GangPart Class(std::uint32_t priority, GangPart part) {
  part.priority = priority;
  return part;
}
GangPart Weight(std::uint32_t weight, GangPart part) {
  part.weight = weight;
  return part;
}

class GangTimeTest : public testing::Test {
 protected:
  const Ids& At(Nanos now, const Gpus& gpus) {
    time.Decide(gpus, now);
    return time.Standing();
  }
  GangTime time;
  const Gpus two = {{Part(10, 1), Part(20, 2)}, {Part(21, 2), Part(11, 1)}};
};

TEST_F(GangTimeTest, TwoGangsTakeTurnsOnBothGpus) {
  EXPECT_EQ(At(0, two), (Ids{20, 21}));
  EXPECT_EQ(time.NextDeadline(), 100 * kMs);
  EXPECT_EQ(At(100 * kMs, two), (Ids{10, 11}));
  EXPECT_EQ(At(200 * kMs, two), (Ids{20, 21}));
}

TEST_F(GangTimeTest, TurnsAreAsWeights) {
  const Gpus gpus = {{Weight(300, Part(10, 1)), Part(20, 2)}, {Part(11, 1), Part(21, 2)}};
  EXPECT_EQ(At(0, gpus), (Ids{20, 21}));
  EXPECT_EQ(time.NextDeadline(), 150 * kMs);
  EXPECT_EQ(At(150 * kMs, gpus), (Ids{10, 11}));
  EXPECT_EQ(time.NextDeadline(), 200 * kMs);
}

TEST_F(GangTimeTest, NothingComesOutWhereNoGangMeetsAnother) {
  EXPECT_EQ(At(0, {{Part(10, kNoGang), Part(20, kNoGang)}, {Part(31, kNoGang)}}), Ids{});
  EXPECT_EQ(At(kMs, {{Part(10, 1), Part(20, kNoGang, false)}, {Part(11, 1)}}), Ids{}) << "the other is idle";
  EXPECT_EQ(At(2 * kMs, {{Part(10, 1), Part(20, kNoGang)}, {Part(11, 1, false)}}), Ids{20}) << "until lately on both";
  GangTime other;
  other.Decide(Gpus{{Part(10, 1), Part(20, kNoGang)}, {Part(11, 1, false)}}, 0);
  EXPECT_EQ(other.Standing(), Ids{}) << "it never worked on the second GPU";
  EXPECT_EQ(other.NextDeadline(), kNever);
}

TEST_F(GangTimeTest, AJobOnOneGpuRunsWhileTheGangWaits) {
  const Gpus gpus = {{Part(30, kNoGang), Part(10, 1)}, {Part(11, 1), Part(41, kNoGang)}};
  At(0, {{Part(30, kNoGang)}, {}});
  EXPECT_EQ(At(kMs, gpus), (Ids{10, 11})) << "41 has the GPU that the gang cannot use yet";
  EXPECT_EQ(At(101 * kMs, gpus), (Ids{30, 41}));
}

TEST_F(GangTimeTest, ATurnIsGivenAwayByTheIdleAndTakenBackForItsRest) {
  const Gpus idle = {{Part(10, 1, false), Part(20, 2)}, {Part(11, 1, false), Part(21, 2)}};
  At(0, two);
  EXPECT_EQ(At(30 * kMs, {{Part(10, 1, false), Part(20, 2)}, {Part(11, 1), Part(21, 2)}}), (Ids{20, 21}))
      << "it works on one still";
  EXPECT_EQ(At(40 * kMs, idle), Ids{});
  EXPECT_EQ(At(41 * kMs, two), (Ids{10, 11})) << "the other has just begun";
  EXPECT_EQ(time.NextDeadline(), 60 * kMs);
  EXPECT_EQ(At(60 * kMs, two), (Ids{20, 21}));
  EXPECT_EQ(time.NextDeadline(), 120 * kMs) << "40 of 100 ms are had";
}

TEST_F(GangTimeTest, AGpuThatAGangDoesNotUseForLongIsForOthers) {
  const auto gpus = [](bool other) {
    return Gpus{{Part(10, 1), Part(20, 2, false)}, {Part(11, 1, false), Part(31, kNoGang, other)}};
  };
  At(0, {{Part(10, 1)}, {Part(11, 1)}});
  At(1, gpus(false));
  EXPECT_EQ(At(2, gpus(true)), Ids{31});
  EXPECT_EQ(At(GangTime::kAway + 1, gpus(true)), Ids{});
}

TEST_F(GangTimeTest, AGangThatAClassStopsOnOneGpuStandsOnAll) {
  const Gpus gpus = {{Part(10, 1), Class(2, Part(20, kNoGang))}, {Part(11, 1), Part(31, kNoGang)}};
  EXPECT_EQ(At(0, gpus), (Ids{10, 11}));
  const Gpus gone = {{Part(10, 1), Class(2, Part(20, kNoGang, false))}, {Part(11, 1)}};
  EXPECT_EQ(At(kMs, gone), (Ids{10, 11})) << "for 20 ms at least, for each stop costs driver calls";
  EXPECT_EQ(At(time.NextDeadline(), gone), Ids{});
  EXPECT_EQ(At(30 * kMs, {{Part(10, 1), Class(12, Part(20, kNoGang))}, {Part(11, 1)}}), Ids{})
      << "steering stops a lower class";
  GangPart patient = Class(2, Part(20, kNoGang));
  patient.strict = false;
  EXPECT_EQ(At(40 * kMs, {{Part(10, 1), patient}, {Part(11, 1)}}), Ids{}) << "and divides where a class gives way";
}

TEST_F(GangTimeTest, AGangAtItsLimitOnOneGpuStandsOnAll) {
  Gpus gpus = two;
  gpus[0][0].at_limit = true;
  EXPECT_EQ(At(0, gpus), (Ids{10, 11}));
  EXPECT_EQ(At(kMs, {{gpus[0][0]}, {Part(11, 1)}}), (Ids{10, 11})) << "though nobody competes";
  EXPECT_EQ(At(2 * kMs, {{Part(10, 1)}, {Part(11, 1)}}), Ids{});
}

}  // namespace
}  // namespace tessera::sched
