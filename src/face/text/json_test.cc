// docs/protocol.md names every field of the API.
#include "face/text/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "face/text/request_bodies.h"

namespace tessera::face {
namespace {

using nlohmann::json;

class Documented : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(TESSERA_DOCS "/protocol.md");
    ASSERT_TRUE(file);
    std::ostringstream text;
    text << file.rdbuf();
    page_ = text.str();
  }
  void ExpectWord(const std::string& word) const { EXPECT_NE(page_.find("`" + word + "`"), std::string::npos) << word; }
  void ExpectKeys(const json& value) const {
    for (const auto& [key, inner] : value.items()) {
      if (value.is_object()) ExpectWord(key);
      if (inner.is_structured()) ExpectKeys(inner);
    }
  }
  std::string page_;
};

TEST_F(Documented, WhatIsAnswered) {
  ExpectKeys(ToJson(server::GpuReport{.swap = server::SwapReport{}}));
  ExpectKeys(ToJson(server::VGpuReport{}));
  ExpectKeys(ToJson(server::ProcessReport{.groups = {channel::Group{}}}));
  ExpectKeys(ToJson(server::SpaceReport{}));
  ExpectKeys(ToJson(server::EvictionReport{}));
  ExpectKeys(ToJson(server::CheckReport{}));
  ExpectKeys(ToProblem({.code = EINVAL, .message = "", .hint = ""}, 400));
}

// The reason beside it may be missing, before the first choice for example.
TEST(GpuJson, SaysWhichWayDividesTheTime) {
  EXPECT_EQ(ToJson(server::GpuReport{.divider = server::Divider::kGates})["control"]["by"], "gate");
  EXPECT_EQ(ToJson(server::GpuReport{.divider = server::Divider::kChannels})["control"]["by"], "channels");
}

TEST(BurstsJson, AreInMicrosecondsAndNullWhereNothingIsKnown) {
  server::VGpuReport vgpu{.goal = "p99=20ms"};
  vgpu.bursts = {.count = 4, .p50 = 1'500'000, .attained_time = 25 * kMillisecond, .judged = 4, .violations = 1};
  vgpu.bursts.verdict = sched::Verdict::Kind::kMissed;
  vgpu.bursts.reason = "why";
  const auto bursts = ToJson(vgpu)["bursts"];
  EXPECT_EQ(bursts["count"], 4);
  EXPECT_EQ(bursts["p50_us"], 1500);
  EXPECT_TRUE(bursts["p99_us"].is_null());
  EXPECT_EQ(bursts["attained"], 25'000);
  EXPECT_EQ(bursts["violations"], 0.25);
  EXPECT_EQ(bursts["verdict"], "missed");
  EXPECT_EQ(bursts["reason"], "why");
  vgpu.bursts = {.attained_pct = 81.5};
  EXPECT_EQ(ToJson(vgpu)["bursts"]["attained"], 81.5);
}

// The hint of a refusal lists them.
TEST_F(Documented, WhatMayBeAsked) {
  const auto refused = ParseVGpuRequest(R"({"no_field": 1})");
  ASSERT_FALSE(refused);
  std::istringstream words(refused.error().hint);
  int fields = 0;
  for (std::string word; words >> word;) {
    if (word == "use" || word == "or") continue;
    if (word.ends_with(',')) word.pop_back();
    ExpectWord(word);
    ++fields;
  }
  EXPECT_EQ(fields, 22);
}

TEST(SpaceJson, IsNullWhereThereIsNothing) {
  server::SpaceReport space{.name = "a", .gpu_uuid = "GPU-1", .gpu = 1, .uid = 1000, .state = "starting"};
  auto json = ToJson(space);
  for (const char* field : {"error", "control_pid", "server_pid", "mode_gain", "mode_tried_ago_us", "mode_why"})
    EXPECT_TRUE(json[field].is_null()) << field;
  EXPECT_EQ(json["vgpus"], json::array());
  EXPECT_EQ(json["mode"], "at_once");
  space.error = "no MPS server started";
  space.control_daemon = 7;
  space.server = 8;
  space.vgpus = {"one"};
  space.sm_limits_pct = 33.3;
  space.mode = "in_turns";
  space.mode_gain = 0.5;
  space.mode_tried_ago_us = 12;
  space.mode_why = "at once is 0.50x of that";
  json = ToJson(space);
  EXPECT_EQ(json["error"], "no MPS server started");
  EXPECT_EQ(json["control_pid"], 7);
  EXPECT_EQ(json["server_pid"], 8);
  EXPECT_EQ(json["vgpus"], json::array({"one"}));
  EXPECT_EQ(json["sm_limits_pct"], 33.3);
  EXPECT_EQ(json["mode"], "in_turns");
  EXPECT_EQ(json["mode_gain"], 0.5);
  EXPECT_EQ(json["mode_tried_ago_us"], 12);
  EXPECT_EQ(json["mode_why"], "at once is 0.50x of that");
}

TEST(VGpuJson, TellsItsGang) {
  EXPECT_TRUE(ToJson(server::VGpuReport{})["gang"].is_null());
  server::VGpuReport vgpu;
  vgpu.gang = "job";
  EXPECT_EQ(ToJson(vgpu)["gang"], "job");
}

TEST(VGpuJson, TellsItsLabels) {
  EXPECT_EQ(ToJson(server::VGpuReport{})["labels"], json::object());
  server::VGpuReport vgpu;
  vgpu.labels = {{"team", "a"}};
  EXPECT_EQ(ToJson(vgpu)["labels"], (json{{"team", "a"}}));
}

TEST(VGpuJson, TellsItsSpace) {
  EXPECT_TRUE(ToJson(server::VGpuReport{})["space"].is_null());
  server::VGpuReport vgpu;
  vgpu.space = "a";
  vgpu.sm_limit_pct = 50;
  vgpu.sms = 66;
  const auto json = ToJson(vgpu);
  EXPECT_EQ(json["space"], "a");
  EXPECT_EQ(json["sm_limit_pct"], 50);
  EXPECT_EQ(json["sms"], 66);
}

}  // namespace
}  // namespace tessera::face
