#include "kubernetes/claims/claim_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

using client::Json;

const Json kAllocated = {
    {"request", "gpu"}, {"driver", kDriver}, {"pool", "node"}, {"device", "gpu-1"}, {"shareID", "s"}};
const PreparedClaim kPrepared{
    .namespace_name = "team",
    .name = "llm",
    .devices = {{.request = "gpu", .pool = "node", .device = "gpu-1", .share_id = "s", .vgpu = "v"}}};

Json Object(const Json& devices = Json::array()) {
  const Json other = {{"request", "nic"}, {"driver", "nic.example.com"}, {"pool", "node"}, {"device", "eth"}};
  return {{"metadata", {{"name", "llm"}, {"namespace", "team"}, {"uid", "u"}}},
          {"status",
           {{"allocation", {{"devices", {{"results", Json::array({kAllocated, other})}}}}}, {"devices", devices}}}};
}

TEST(ClaimStatus, OfOurDevicesOnly) {
  const Json body = StatusWith({kReady, true, "Prepared", "well"}, Object(), "node", &kPrepared, "now");
  ASSERT_EQ(body["status"]["devices"].size(), 1u);
  const Json& device = body["status"]["devices"][0];
  EXPECT_EQ(device["shareID"], "s");
  EXPECT_EQ(device["data"], (Json{{"vgpu", "v"}}));
  EXPECT_EQ(device["conditions"][0]["status"], "True");
  EXPECT_EQ(device["conditions"][0]["lastTransitionTime"], "now");
  EXPECT_EQ(body["metadata"]["uid"], "u");
  EXPECT_TRUE(StatusWith({kReady, true, "Prepared", "well"}, Object(), "another", &kPrepared, "now").is_null());
  EXPECT_TRUE(StatusWith({kReady, true, "Prepared", "well"}, Json(), "node", nullptr, "now").is_null());
}

TEST(ClaimStatus, KeepsWhatWasThere) {
  const Condition ready{kReady, true, "Prepared", "well"};
  const Json first = StatusWith(ready, Object(), "node", &kPrepared, "noon")["status"]["devices"];
  EXPECT_TRUE(StatusWith(ready, Object(first), "node", &kPrepared, "one").is_null()) << "it says so already";
  const Json second =
      StatusWith({kChanged, false, "Refused", "no"}, Object(first), "node", nullptr, "one")["status"]["devices"];
  ASSERT_EQ(second[0]["conditions"].size(), 2u);
  EXPECT_EQ(second[0]["data"], (Json{{"vgpu", "v"}}));
  const Json third =
      StatusWith({kChanged, false, "Refused", "still no"}, Object(second), "node", nullptr, "two")["status"]["devices"];
  EXPECT_EQ(third[0]["conditions"][1]["lastTransitionTime"], "one");
  EXPECT_EQ(third[0]["conditions"][1]["message"], "still no");
  const Json fourth =
      StatusWith({kChanged, true, "Applied", ""}, Object(third), "node", nullptr, "two")["status"]["devices"];
  EXPECT_EQ(fourth[0]["conditions"][1]["lastTransitionTime"], "two");
  EXPECT_EQ(fourth[0]["conditions"][0]["lastTransitionTime"], "noon");
}

}  // namespace
}  // namespace tessera::kubernetes
