#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "cli/plan/plan_answer.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

// What is said of tenants, each alone on a GPU.
class PlanTextTest : public testing::Test {
 protected:
  PlanTextTest() {
    question_.gpu.title = "Test GPU";
    question_.gpu.memory = 80 * kGiB;
    workload_.title = "lab";
  }
  void Add(const std::string& name, const sched::Goal& goal, const plan::Attainment& got) {
    const std::size_t index = workload_.tenants.size();
    workload_.tenants.push_back({.name = name, .goal = goal});
    plan_.placement.seats.push_back({.gpus = {index}});
    plan_.gpus.push_back({.tenants = {index}});
    plan_.attained.push_back(got);
  }
  std::string Text() const { return PlanText({workload_, question_, plan_, {}}, false); }
  std::string Html() const { return PlanHtml({workload_, question_, plan_, {}}); }

  plan::Workload workload_;
  plan::PlanQuestion question_;
  plan::FleetPlan plan_;
};

TEST_F(PlanTextTest, OneOfAKindIsSingular) {
  Add("a", sched::SpeedGoal{50}, {.placed = true, .verdict = "kept"});
  plan_.events = 1;
  plan_.simulated = kSecond;
  EXPECT_THAT(Text(), HasSubstr("lab: 1 tenant needs 1 GPU (Test GPU"));
  EXPECT_THAT(Text(), HasSubstr("The goal is kept.\n"));
  EXPECT_THAT(Text(), HasSubstr(": 1 event, "));
  EXPECT_THAT(Html(), HasSubstr("lab: 1 tenant on 1 GPU<"));
  plan_.refused = 1;
  plan_.crowded = 1;
  EXPECT_THAT(Text(), HasSubstr("lab: 1 tenant asks for more than 1 GPU ("));
  EXPECT_THAT(Text(), HasSubstr("1 tenant has no place."));
  EXPECT_THAT(Text(), HasSubstr("1 tenant is there although"));
}

TEST_F(PlanTextTest, SeveralArePlural) {
  for (const char* name : {"a", "b"}) Add(name, sched::SpeedGoal{50}, {.placed = true, .verdict = "kept"});
  plan_.attained[1].kept = false;
  EXPECT_THAT(Text(), HasSubstr("lab: 2 tenants need 2 GPUs (Test GPU"));
  EXPECT_THAT(Text(), HasSubstr("1 of 2 goals is kept.\n"));
  EXPECT_THAT(Html(), HasSubstr("lab: 2 tenants on 2 GPUs<"));
  plan_.refused = 2;
  EXPECT_THAT(Text(), HasSubstr("2 tenants have no place."));
}

TEST_F(PlanTextTest, AGoalOutOfReachSaysWhy) {
  Add("chat", sched::LatencyGoal{99, 10 * kMillisecond},
      {.placed = true, .in_time = {0, 0, 0}, .kept = false, .verdict = "missed", .why = "bursts need 12 ms < alone"});
  EXPECT_THAT(Text(), HasSubstr("The goal is missed.\n"));
  EXPECT_THAT(Text(), HasSubstr("p99=10ms  missed: 0 % in time; bursts need 12 ms < alone\n"));
  EXPECT_THAT(Html(), HasSubstr(">missed: bursts need 12 ms &lt; alone<"));
  EXPECT_EQ(PlanJson({workload_, question_, plan_, {}})["tenants"][0]["why"], "bursts need 12 ms < alone");
}

}  // namespace
}  // namespace tessera::cli
