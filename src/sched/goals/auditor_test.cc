#include "sched/goals/auditor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

TEST(Auditor, BeginsAtOnceWithAVgpuThatIsNotKnown) {
  Auditor auditor({});
  EXPECT_FALSE(auditor.Begin(1, 0, 0)) << "it has no goal";
  auditor.Add(1);
  auditor.Add(2);
  EXPECT_TRUE(auditor.Begin(1, 0, 0));
  EXPECT_EQ(auditor.audited(), VgpuId{1});
  EXPECT_EQ(auditor.alone_since(), GoalsConfig().freeze_time);
  EXPECT_FALSE(auditor.Begin(2, 0, 0)) << "one at a time";
}

TEST(Auditor, EndsWithABurstThatBroughtAFigure) {
  Auditor auditor({});
  auditor.Add(1);
  ASSERT_TRUE(auditor.Begin(1, 0, 0));
  auditor.BurstEnded(1, 5 * kMs);
  EXPECT_TRUE(auditor.audited()) << "a few more cost little";
  auditor.BurstEnded(1, 25 * kMs);
  EXPECT_FALSE(auditor.audited());
}

TEST(Auditor, EndsIfNoBurstComes) {
  Auditor auditor({});
  auditor.Add(1);
  ASSERT_TRUE(auditor.Begin(1, 0, 0));
  auditor.Advance(false, 0, auditor.NextDeadline());
  EXPECT_FALSE(auditor.audited());
}

TEST(Auditor, WaitsForALongBurstButNotForever) {
  Auditor auditor({});
  auditor.Add(1);
  ASSERT_TRUE(auditor.Begin(1, 0, 0));
  auditor.Advance(true, 0, auditor.NextDeadline());
  EXPECT_TRUE(auditor.audited());
  EXPECT_EQ(auditor.NextDeadline(), kSecond);
  auditor.Advance(true, 0, kSecond);
  EXPECT_FALSE(auditor.audited());
}

TEST(Auditor, EndsWithItsVgpu) {
  Auditor auditor({});
  auditor.Add(1);
  ASSERT_TRUE(auditor.Begin(1, 0, 0));
  auditor.Remove(1, kMs);
  EXPECT_FALSE(auditor.audited());
  EXPECT_EQ(auditor.NextDeadline(), kNever);
}

// The callers ask as often as they like, and an audit lasts as long as they like.
RC_GTEST_PROP(AuditorProperty, AuditsTakeAPercentOfTheTimeAndALittleAtFirst, ()) {
  const GoalsConfig config;
  Auditor auditor(config);
  const auto vgpus = *rc::gen::inRange<VgpuId>(1, 9);
  for (VgpuId id = 0; id < vgpus; ++id) auditor.Add(id);
  Nanos now = 0;
  Nanos audited = 0;
  const int steps = *rc::gen::inRange(100, 3000);
  for (int i = 0; i < steps; ++i) {
    const Nanos elapsed = *rc::gen::inRange<Nanos>(0, 100 * kMs);
    // Deadlines are kept.
    const Nanos next = std::min(now + elapsed, std::max(now, auditor.NextDeadline()));
    if (auditor.audited()) audited += next - now;
    now = next;
    auditor.Advance(*rc::gen::inRange(0, 2) == 0, *rc::gen::inRange(0u, 20u), now);
    if (*rc::gen::inRange(0, 2) == 0) auditor.BurstEnded(*rc::gen::inRange(0u, 20u), now);
    auditor.Begin(*rc::gen::inRange<VgpuId>(0, 9), *rc::gen::inRange(0u, 20u), now);
  }
  // The last of the first audits may end a second late, and the last of all may not be paid back yet.
  const double first = static_cast<double>(vgpus * (config.first_audits + kSecond));
  const double allowed = 0.01 * static_cast<double>(now) + first + kSecond;
  RC_ASSERT(static_cast<double>(audited) <= allowed);
}

}  // namespace
}  // namespace tessera::sched
