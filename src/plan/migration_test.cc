// Programs that go from one simulated GPU to another one.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "base/size.h"
#include "base/testing/same_cases.h"
#include "plan/simulator.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;

GpuSpec Gpu40(TimeBy by) { return {.memory = 40 * kGiB, .time_by = by}; }
Program Uses(std::uint64_t bytes) { return {.phases = {{.memory = bytes}}}; }

class MigrationTest : public testing::TestWithParam<TimeBy> {
 protected:
  Simulator node_{{Gpu40(GetParam()), Gpu40(GetParam())}};
};

INSTANTIATE_TEST_SUITE_P(By, MigrationTest, testing::Values(TimeBy::kTokens, TimeBy::kSteering),
                         [](const auto& by) { return by.param == TimeBy::kTokens ? "Tokens" : "Steering"; });

TEST_P(MigrationTest, OneOfTwoGoesAndBothHaveAGpuToThemselves) {
  for (const sched::VgpuId id : {1, 2}) ASSERT_TRUE(node_.Add(id, {}, Uses(10 * kGiB)));
  node_.Run(10 * kSecond);
  EXPECT_NEAR(node_.Of(2).ExecutedPct(), 50, 2);
  node_.StartMeasuring();
  ASSERT_TRUE(node_.Migrate(2, 1, kSecond));
  EXPECT_EQ(node_.GpuOf(2), 1u);
  EXPECT_EQ(node_.AllocatedBy(2), 10 * kGiB);
  node_.Run(kSecond);
  EXPECT_TRUE(node_.Migrates(2)) << "its memory is not out yet";
  EXPECT_EQ(node_.Of(2).executed, 0);
  node_.Run(kSecond);
  EXPECT_FALSE(node_.Migrates(2));
  EXPECT_EQ(node_.Of(2).bytes_out, 10 * kGiB);
  EXPECT_EQ(node_.Of(2).bytes_in, 10 * kGiB);
  EXPECT_NEAR(static_cast<double>(node_.Of(2).executed), (2 - 1 - 2 * 10.74 / 50) * kSecond, 0.1 * kSecond);
  node_.StartMeasuring();
  node_.Run(10 * kSecond);
  for (const sched::VgpuId id : {1, 2}) EXPECT_GT(node_.Of(id).ExecutedPct(), 99);
  EXPECT_TRUE(node_.violations().empty());
}

TEST_P(MigrationTest, WhatIsIdleTakesItsMemoryWhenItHasWork) {
  const Program idle = {
      .phases = {{.memory = 10 * kGiB, .burst = 0, .bursts = 0, .begins = 0},
                 {.memory = 10 * kGiB, .burst = 10 * kMs, .bursts = 1, .open = true, .begins = 20 * kSecond}},
      .repeats = 1};
  ASSERT_TRUE(node_.Add(1, {}, idle));
  node_.Run(kSecond);
  ASSERT_TRUE(node_.Migrate(1, 1, kSecond));
  node_.Run(10 * kSecond);
  EXPECT_EQ(node_.Of(1).bytes_in, 0u);
  node_.Run(20 * kSecond);
  EXPECT_EQ(node_.Of(1).bytes_in, 10 * kGiB);
  ASSERT_EQ(node_.BurstsOf(1).done(), 1u);
  EXPECT_LT(node_.BurstsOf(1).latencies[0], kSecond);
  EXPECT_TRUE(node_.violations().empty());
}

TEST_P(MigrationTest, WhatCannotBeIsRefused) {
  ASSERT_TRUE(node_.Add(1, {.request_pct = 60}, Uses(kGiB)));
  ASSERT_TRUE(node_.Add(2, {.request_pct = 60}, Uses(kGiB), {1}));
  ASSERT_TRUE(node_.Add(3, {}, Uses(kGiB), {0, 1}));
  EXPECT_EQ(node_.Migrate(4, 1, 0).error().code, ENOENT);
  EXPECT_EQ(node_.Migrate(1, 2, 0).error().code, ENODEV);
  EXPECT_EQ(node_.Migrate(3, 1, 0).error().code, ENOTSUP);
  EXPECT_TRUE(node_.Migrate(1, 0, 0)) << "it is there";
  node_.Run(kSecond);
  EXPECT_FALSE(node_.Migrate(1, 1, 0)) << "60 % are promised there";
  EXPECT_EQ(node_.GpuOf(1), 0u);
  node_.Run(5 * kSecond);
  node_.StartMeasuring();
  node_.Run(5 * kSecond);
  EXPECT_GT(node_.Of(1).ExecutedPct(), 55) << "it goes on where it was";
  EXPECT_TRUE(node_.violations().empty());
}

// Nothing is lost, and nothing is done twice, whenever programs move.
RC_GTEST_PROP(Migration, AllBurstsEndAndAllLawsHold, ()) {
  const auto between = [](std::uint64_t least, std::uint64_t most) { return *rc::gen::inRange(least, most + 1); };
  const TimeBy by = between(0, 1) == 0 ? TimeBy::kTokens : TimeBy::kSteering;
  constexpr std::size_t kGpus = 3;
  Simulator node(std::vector<GpuSpec>(kGpus, Gpu40(by)));
  const std::size_t programs = between(1, 6);
  constexpr std::uint32_t kBursts = 100;
  for (std::size_t i = 1; i <= programs; ++i) {
    const Phase phase = {.memory = between(0, 30) * kGiB + between(0, 100) * kMiB,
                         .burst = static_cast<Nanos>(between(1, 40)) * kMs,
                         .bursts = kBursts,
                         .gap = Span::About(static_cast<Nanos>(between(1, 100)) * kMs),
                         .open = between(0, 1) == 1};
    RC_ASSERT(static_cast<bool>(
        node.Add(static_cast<sched::VgpuId>(i), {}, {.phases = {phase}, .repeats = 1}, {between(0, kGpus - 1)})));
  }
  for (std::size_t moves = between(0, 20); moves > 0; --moves) {
    node.Run(static_cast<Nanos>(between(0, 2000)) * kMs);
    const auto id = static_cast<sched::VgpuId>(between(1, programs));
    const std::size_t to = between(0, kGpus - 1);
    RC_ASSERT(static_cast<bool>(node.Migrate(id, to, static_cast<Nanos>(between(0, 1500)) * kMs)));
    RC_ASSERT(node.GpuOf(id) == to);
  }
  node.Run(600 * kSecond);
  for (const std::string& violation : node.violations()) RC_FAIL(violation);
  for (std::size_t i = 1; i <= programs; ++i) RC_ASSERT(node.BurstsOf(static_cast<sched::VgpuId>(i)).done() == kBursts);
}

// GPUs without programs in common are run one after the other.
TEST(Migration, OthersGpusChangeNothing) {
  const auto run = [](bool gang) {
    Simulator node(std::vector<GpuSpec>(4, Gpu40(TimeBy::kSteering)));
    for (const sched::VgpuId id : {1, 2, 3})
      EXPECT_TRUE(node.Add(id, {}, {.phases = {{.memory = 30 * kGiB, .burst = 5 * kMs, .gap = Span::About(20 * kMs)}}},
                           {id == 3 ? 1u : 0u}));
    if (gang) EXPECT_TRUE(node.Add(4, {}, Uses(kGiB), {2, 3}));
    node.Run(20 * kSecond);
    EXPECT_TRUE(node.violations().empty());
    std::vector<std::vector<Nanos>> latencies;
    for (const sched::VgpuId id : {1, 2, 3}) latencies.push_back(node.BurstsOf(id).latencies);
    return latencies;
  };
  EXPECT_EQ(run(false), run(true));
}

}  // namespace
}  // namespace tessera::plan
