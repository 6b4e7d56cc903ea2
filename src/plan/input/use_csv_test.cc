#include "plan/input/use_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {

// Found by gtest, which looks beside the type.
void PrintTo(const UseSample& sample, std::ostream* out) {
  *out << "{" << sample.at / kSecond << " s, " << sample.duty << ", " << sample.memory / kMiB << " MiB}";
}
static bool operator==(const UseSample& one, const UseSample& other) {
  return one.at == other.at && one.duty == other.duty && one.memory == other.memory;
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Workload> UseOf(const std::string& rows) {
  return WorkloadOf("day.csv", "second,pod,duty_pct,memory_mib\n" + rows);
}

UseSample Sample(int second, float duty, std::uint64_t mib) { return {second * kSecond, duty, mib * kMiB}; }

TEST(UseCsv, TenantsWithSamples) {
  const auto use = UseOf("100,a,50,1000\n100,b,0,2000\n110,a,0,3000\n110,b,12.5,2000\n120,a,100,500\n120,b,0,2000\n");
  ASSERT_TRUE(use) << use.error().Text();
  ASSERT_EQ(use->tenants.size(), 2u);
  EXPECT_EQ(use->title, "day.csv");
  EXPECT_EQ(use->interval, 10 * kSecond);
  EXPECT_EQ(use->length, 30 * kSecond);
  EXPECT_THAT(use->notes, IsEmpty());
  const Tenant& a = use->tenants[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.memory, 3000 * kMiB);
  EXPECT_EQ(a.gpus, 1u);
  EXPECT_EQ(a.service, 0);
  EXPECT_THAT(a.samples, ElementsAre(Sample(0, 0.5, 1000), Sample(10, 0, 3000), Sample(20, 1, 500)));
  EXPECT_EQ(use->tenants[1].samples[1].duty, 0.125f);
}

TEST(UseCsv, OurOwnColumnsSayWhereAndWhose) {
  const auto use = WorkloadOf("own.csv",
                              "second,vgpu,gpu,duty_pct,memory_mib,group\n1764151200,a,0,50,1,team\n"
                              "1764151200,b,1,50,1,\n1764151210,a,2,50,1,team\n");
  ASSERT_TRUE(use) << use.error().Text();
  EXPECT_EQ(use->tenants[0].group, "team");
  EXPECT_EQ(use->tenants[0].ran_on, "2");
  EXPECT_EQ(use->tenants[1].ran_on, "1");
  EXPECT_EQ(use->tenants[1].group, "");
  EXPECT_EQ(use->length, 20 * kSecond);
}

TEST(UseCsv, ALongGapMeansThatItWasAway) {
  // Three intervals without a row: the sample before lasts. More: nothing was used.
  const auto use = UseOf("0,a,50,1\n10,a,50,1\n40,a,50,1\n50,a,50,1\n81,a,50,1\n91,a,50,1\n101,a,50,1\n");
  ASSERT_TRUE(use);
  EXPECT_THAT(use->tenants[0].samples,
              ElementsAre(Sample(0, .5, 1), Sample(10, .5, 1), Sample(40, .5, 1), Sample(50, .5, 1), Sample(60, 0, 0),
                          Sample(81, .5, 1), Sample(91, .5, 1), Sample(101, .5, 1)));
  EXPECT_THAT(use->notes, ElementsAre("1 gap of more than 3 samples, in 1 program: taken as away, without memory",
                                      "1 shorter gap (samples are 10 s apart): the sample before each lasts as long"));
}

TEST(UseCsv, ProgramsComeAndGo) {
  const auto use = UseOf("0,a,1,1\n10,a,1,1\n20,b,1,1\n30,b,1,1\n");
  ASSERT_TRUE(use);
  EXPECT_THAT(use->tenants[0].samples, ElementsAre(Sample(0, .01f, 1), Sample(10, .01f, 1)));
  EXPECT_THAT(use->tenants[1].samples, ElementsAre(Sample(20, .01f, 1), Sample(30, .01f, 1)));
  EXPECT_EQ(use->length, 40 * kSecond);
  EXPECT_THAT(use->notes, IsEmpty());
}

TEST(UseCsv, RowsWithoutAValueAreLeftOut) {
  const auto use = UseOf("0,a,,1\n10,a,1,\n20,a,1,7\n30,a,1,7\n");
  ASSERT_TRUE(use);
  EXPECT_EQ(use->tenants[0].samples.size(), 2u);
  EXPECT_EQ(use->tenants[0].samples[0].at, 20 * kSecond);  // the record begins with the file
  EXPECT_THAT(use->notes, ElementsAre("2 rows without duty or memory are left out"));
}

TEST(UseCsv, OneSampleEach) {
  const auto use = UseOf("5,a,1,1\n5,b,1,1\n");
  ASSERT_TRUE(use);
  EXPECT_EQ(use->interval, 60 * kSecond);
  EXPECT_EQ(use->length, 60 * kSecond);
  EXPECT_THAT(use->notes, ElementsAre(HasSubstr("one sample only")));
}

TEST(UseCsv, WrongRowsSayTheirLine) {
  EXPECT_EQ(ErrorOf(UseOf("57,a,1,1\n0,a,1,1\n")),
            "day.csv:3: second: \"0\" is before the row above, 57: the clock goes back; sort the file by second");
  EXPECT_EQ(ErrorOf(UseOf("57,a,1,1\n0,b,1,1\n")),
            "day.csv:3: second: \"0\" is before the row above, 57: the clock goes back; sort the file by second");
  EXPECT_EQ(ErrorOf(UseOf("0,a,1,1\n0,b,1,1\n0,a,1,1\n")), "day.csv:4: pod: \"a\" has two rows of the same second");
  EXPECT_EQ(ErrorOf(UseOf("0,a,1,-5\n")), "day.csv:2: memory_mib: \"-5\" is below 0");
  EXPECT_EQ(ErrorOf(UseOf("0,a,100.5,5\n")), "day.csv:2: duty_pct: \"100.5\" is above 100");
  EXPECT_EQ(ErrorOf(UseOf("0,a,-1,5\n")), "day.csv:2: duty_pct: \"-1\" is below 0");
  EXPECT_EQ(ErrorOf(UseOf("-1,a,1,5\n")), "day.csv:2: second: \"-1\" is below 0");
  EXPECT_EQ(ErrorOf(UseOf("0,a,1,1e300\n")), "day.csv:2: memory_mib: \"1e300\" is above 1073741824");
  EXPECT_EQ(ErrorOf(UseOf("0,,1,1\n")), "day.csv:2: pod: \"\" is no name; use 1 to 253 printable characters");
  EXPECT_EQ(ErrorOf(UseOf("0,a,1\n")), "day.csv:2: 3 fields where the first line names 4 columns");
  EXPECT_EQ(ErrorOf(UseOf("")), "day.csv has no samples");
}

}  // namespace
}  // namespace tessera::plan
