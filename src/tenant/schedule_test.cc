#include "tenant/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temporary_folder.h"

namespace tessera::tenant {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Schedule> Read(const std::string& text) {
  const TemporaryFolder folder;
  return Schedule::Read(folder.File("schedule.csv", text));
}

TEST(Schedule, ReadsStepsWithTheirUnits) {
  const auto schedule = Read("second,duty_pct,memory_mib\r\n0,50,3\r\n1.5,0,2\r\n4,0,0\r\n");
  ASSERT_TRUE(schedule) << schedule.error().Text();
  ASSERT_EQ(schedule->steps().size(), 3u);
  EXPECT_EQ(schedule->steps()[1].at, 1'500 * kMillisecond);
  EXPECT_EQ(schedule->steps()[0].duty, 0.5);
  EXPECT_EQ(schedule->steps()[0].memory, 3u << 20);
  EXPECT_EQ(schedule->end(), 4 * kSecond);
}

TEST(Schedule, NamesTheLineOfAWrongRow) {
  const std::string head = "second,duty_pct,memory_mib\n0,1,1\n";
  for (const char* row :
       {"1,101,1", "1,-1,1", "1,1", "1,1,1,1", "one,1,1", "1,nan,1", "1,1,-2", "0,1,1", "2e9,1,1", ""}) {
    const auto wrong = Read(head + row + "\n5,0,0\n");
    ASSERT_FALSE(wrong) << row;
    EXPECT_THAT(wrong.error().Text(), HasSubstr("schedule.csv:3: ")) << row;
  }
  EXPECT_THAT(Read("second,duty_pct\n").error().Text(), HasSubstr(":1: "));
  EXPECT_THAT(Read(head).error().Text(), HasSubstr("two rows"));
  EXPECT_EQ(Schedule::Read("/nonexistent").error().code, ENOENT);
}

TEST(Schedule, BurstsAreDueWhenTheDutySumsUpToThem) {
  const Schedule half({{0, 0.5, 0}, {kSecond, 0, 0}});
  EXPECT_THAT(half.Due(200 * kMillisecond), ElementsAre(400 * kMillisecond, 800 * kMillisecond));
  // What is left of a step counts in the next one, also over a pause.
  const Schedule steps({{0, 0.3, 0}, {kSecond, 0, 0}, {2 * kSecond, 1, 0}, {3 * kSecond, 0, 0}});
  EXPECT_THAT(steps.Due(500 * kMillisecond), ElementsAre(2'200 * kMillisecond, 2'700 * kMillisecond));
  EXPECT_TRUE(Schedule({{0, 0, 0}, {kSecond, 1, 0}}).Due(kMillisecond).empty());  // the last step only ends it
}

}  // namespace
}  // namespace tessera::tenant
