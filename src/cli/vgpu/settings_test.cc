#include "cli/vgpu/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cli {
using client::Json;

namespace {

TEST(ParseCompute, OneFigureIsRequestAndLimit) {
  const auto share = ParseCompute("30");
  ASSERT_TRUE(share);
  EXPECT_EQ(share->request_pct, 30);
  EXPECT_EQ(share->limit_pct, 30);
}

TEST(ParseCompute, TwoFiguresAreRequestAndLimit) {
  const auto share = ParseCompute("12.5%:60");
  ASSERT_TRUE(share);
  EXPECT_EQ(share->request_pct, 12.5);
  EXPECT_EQ(share->limit_pct, 60);
}

TEST(ParseCompute, RefusesAndNamesTheText) {
  for (const std::string text : {"", ":", "30:", ":30", "x", "30:60:90", "101", "-1", "60:30", "0", "0:0"}) {
    const auto share = ParseCompute(text);
    ASSERT_FALSE(share) << text;
    EXPECT_FALSE(share.error().hint.empty()) << text;
  }
  EXPECT_NE(ParseCompute("60:30").error().message.find("60:30"), std::string::npos);
}

TEST(RequestBody, HasSpaceAndSms) {
  VgpuSettings settings;
  settings.space = "team";
  settings.sm = "33.5";
  const auto body = RequestBody(settings);
  ASSERT_TRUE(body) << body.error().Text();
  EXPECT_EQ((*body)["space"], "team");
  EXPECT_EQ((*body)["sm_limit"], 33.5);
  settings.space = "a b";
  EXPECT_FALSE(RequestBody(settings));
  settings.space.clear();
  for (const char* sm : {"0", "101", "-5", "x", "30:60"}) {
    settings.sm = sm;
    EXPECT_FALSE(RequestBody(settings)) << sm;
  }
}

TEST(ParseWeight, KeepsTheRangeOfCgroups) {
  EXPECT_EQ(ParseWeight("1").value(), 1);
  EXPECT_EQ(ParseWeight("10000").value(), 10000);
  for (const std::string text : {"0", "10001", "-5", "x", "", "5x", "1.5"}) EXPECT_FALSE(ParseWeight(text)) << text;
}

TEST(ParsePriority, HasSixteenClasses) {
  EXPECT_EQ(ParsePriority("0").value(), 0);
  EXPECT_EQ(ParsePriority("15").value(), 15);
  for (const std::string text : {"16", "-1", "x", "", "2x", "1.5"}) {
    const auto priority = ParsePriority(text);
    ASSERT_FALSE(priority) << text;
    EXPECT_NE(priority.error().hint.find("from 0 to 15"), std::string::npos);
  }
}

TEST(CheckName, TakesWhatFitsIntoAPath) {
  EXPECT_TRUE(CheckName("team-a.train_2"));
  EXPECT_TRUE(CheckName(std::string(63, 'a')));
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a b"), std::string("../x"),
                                  std::string(".."), std::string("é"), std::string(64, 'a')}) {
    EXPECT_FALSE(CheckName(name)) << name;
  }
}

TEST(RequestBody, HasOnlyWhatWasGiven) {
  EXPECT_EQ(RequestBody({}).value(), Json::object());
  EXPECT_EQ(RequestBody({.gpu = "auto", .memory = "25%"}).value(), (Json{{"gpu", "auto"}, {"memory_limit", "25%"}}));
  EXPECT_EQ(RequestBody({.memory = "max"}).value(), (Json{{"memory_limit", "max"}}));
  EXPECT_EQ(RequestBody({.memory_request = "20G"}).value(), (Json{{"memory_request", "20G"}}));
  EXPECT_EQ(RequestBody({.gpu = "1", .compute = "30:60", .weight = "200"}).value(),
            (Json{{"gpu", 1}, {"compute_request", 30.0}, {"compute_limit", 60.0}, {"compute_weight", 200}}));
}

TEST(RequestBody, MemoryBeyondTheLimitLiesInHostMemory) {
  EXPECT_EQ(RequestBody({.memory = "20G:40G", .swap_max = "0"}).value(),
            (Json{{"memory_limit", "20G"}, {"memory_max", "40G"}, {"memory_swap_max", "0"}}));
  EXPECT_EQ(RequestBody({.memory = "max:40G"}).value(), (Json{{"memory_limit", "max"}, {"memory_max", "40G"}}));
  EXPECT_EQ(RequestBody({.memory = "50%:200G"}).value(), (Json{{"memory_limit", "50%"}, {"memory_max", "200G"}}));
  EXPECT_FALSE(VgpuSettings{.swap_max = "max"}.Empty());
  for (const std::string memory : {"40G:20G", "20G:", ":40G", "20G:max", "20G:30G:40G", "60%:50%"}) {
    EXPECT_FALSE(RequestBody({.memory = memory})) << memory;
  }
  EXPECT_FALSE(RequestBody({.swap_max = "some"}));
}

TEST(RequestBody, TheHighestPriorityIsNotLeftOut) {
  const VgpuSettings settings{.priority = "0"};
  EXPECT_FALSE(settings.Empty());
  EXPECT_EQ(RequestBody(settings).value(), (Json{{"compute_priority", 0}}));
}

TEST(RequestBody, HasTheGang) {
  EXPECT_FALSE(VgpuSettings{.gang = "none"}.Empty());
  EXPECT_EQ(RequestBody({.gang = "job-1"}).value(), (Json{{"gang", "job-1"}}));
  EXPECT_EQ(RequestBody({.gang = "none"}).value(), (Json{{"gang", "none"}}));
  const auto odd = RequestBody({.gang = "a/b"});
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("gang 'a/b'"), std::string::npos) << odd.error().message;
}

TEST(RequestBody, HasTheLabels) {
  EXPECT_FALSE(VgpuSettings{.labels = {"none"}}.Empty());
  EXPECT_EQ(RequestBody({.labels = {"team=a", "pod=x=y", "empty="}}).value(),
            (Json{{"labels", {{"team", "a"}, {"pod", "x=y"}, {"empty", ""}}}}));
  EXPECT_EQ(RequestBody({.labels = {"none"}}).value(), (Json{{"labels", Json::object()}}));
  for (const std::vector<std::string>& odd :
       {std::vector<std::string>{"team"}, {"=a"}, {"team=a", "none"}, {"team=a", "team=b"}}) {
    const auto body = RequestBody({.labels = odd});
    ASSERT_FALSE(body) << odd.back();
    EXPECT_NE(body.error().message.find("label"), std::string::npos) << body.error().message;
  }
}

// Of goals only the daemon knows.
TEST(RequestBody, AGoalGoesAsItIs) {
  EXPECT_FALSE(VgpuSettings{.goal = "none"}.Empty());
  EXPECT_EQ(RequestBody({.goal = "p99=20ms"}).value(), (Json{{"goal", "p99=20ms"}}));
}

TEST(RequestBody, RefusesUnknownSizes) {
  for (const std::string memory : {"20X", "lots", "-1G", "200%"}) {
    const auto body = RequestBody({.memory = memory});
    ASSERT_FALSE(body) << memory;
    EXPECT_NE(body.error().message.find(memory), std::string::npos);
  }
  EXPECT_FALSE(RequestBody({.gpu = "99999999999999"}));
}

}  // namespace
}  // namespace tessera::cli
