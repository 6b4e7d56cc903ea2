#include "kubernetes/claims/vgpu_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

using testing::HasSubstr;

Json ClaimObject(const Json& config, const Json& consumed = {{"memory", "60Gi"}, {"compute", "40"}}) {
  return {{"metadata", {{"namespace", "team"}, {"name", "llm"}, {"uid", "u1"}}},
          {"status",
           {{"allocation",
             {{"devices",
               {{"results",
                 {{{"request", "gpu"},
                   {"driver", kDriver},
                   {"pool", "node"},
                   {"device", "gpu-1"},
                   {"shareID", "s1"},
                   {"consumedCapacity", consumed}},
                  {{"request", "nic"}, {"driver", "nic.example.com"}, {"pool", "node"}, {"device", "eth"}}}},
                {"config", config}}}}}}}};
}

Json Config(const char* source, Json parameters, const Json& requests = Json::array()) {
  parameters["apiVersion"] = kParametersVersion;
  parameters["kind"] = kParametersKind;
  return {{"source", source},
          {"requests", requests},
          {"opaque", {{"driver", kDriver}, {"parameters", std::move(parameters)}}}};
}

Result<VGpuTerms> AllTerms(const Json& object) {
  const auto claim = ReadClaim(object, "node");
  if (!claim) return std::unexpected(claim.error());
  EXPECT_EQ(claim->devices.size(), 1u);
  return TermsOf(*claim, claim->devices.at(0));
}

Result<Json> Terms(const Json& object) {
  auto terms = AllTerms(object);
  if (!terms) return std::unexpected(terms.error());
  return terms->fields;
}

constexpr std::uint64_t kGi = 1ull << 30;

TEST(VGpuTerms, CapacityIsWhatIsPromised) {
  const auto terms = Terms(ClaimObject(Json::array()));
  ASSERT_TRUE(terms) << terms.error().Text();
  EXPECT_EQ(nlohmann::json(*terms), (nlohmann::json{{"memory_limit", 60 * kGi},
                                                    {"memory_request", 60 * kGi},
                                                    {"memory_max", 60 * kGi},
                                                    {"compute_request", 40},
                                                    {"compute_limit", 100},
                                                    {"compute_weight", 100},
                                                    {"compute_priority", 8},
                                                    {"goal", "none"}}));
  const auto swaps = Terms(ClaimObject(Json::array(), {{"memory", "20Gi"}, {"swap", "40Gi"}}));
  ASSERT_TRUE(swaps) << swaps.error().Text();
  EXPECT_EQ((*swaps)["memory_max"], 60 * kGi);
  EXPECT_EQ((*swaps)["memory_swap_max"], 40 * kGi);
}

TEST(VGpuTerms, ASpaceIsOfItsNamespaceAndGpu) {
  const Json consumed = {{"memory", "20Gi"}, {"sm", "40"}};
  const auto terms = Terms(ClaimObject(
      Json::array({Config("FromClaim", {{"space", "serving"}, {"sm", {{"reserved", true}, {"burst", true}}}})}),
      consumed));
  ASSERT_TRUE(terms) << terms.error().Text();
  EXPECT_EQ((*terms)["space"], "team.serving.gpu-1");
  EXPECT_EQ((*terms)["sm_limit"], 40);
  EXPECT_EQ((*terms)["sm_reserved"], true);
  EXPECT_EQ((*terms)["sm_burst"], true);
  EXPECT_THAT(Terms(ClaimObject(Json::array(), consumed)).error().Text(), HasSubstr("space is missing"));
  const std::string longest(49 - 4, 's');
  EXPECT_TRUE(Terms(ClaimObject(Json::array({Config("FromClaim", {{"space", longest}})}))));
}

TEST(VGpuTerms, AChangeGoesBeforeAll) {
  auto claim = ReadClaim(
      ClaimObject(Json::array({Config("FromClaim", {{"compute", {{"weight", 300}, {"limit", 50}}}})})), "node");
  ASSERT_TRUE(claim);
  EXPECT_EQ(AddChange("weight: 5", *claim).error().code, EINVAL);
  ASSERT_TRUE(AddChange("", *claim));
  EXPECT_EQ(TermsOf(*claim, claim->devices[0])->fields["compute_weight"], 300);
  ASSERT_TRUE(AddChange(R"({"compute": {"weight": 5}})", *claim));
  EXPECT_EQ(TermsOf(*claim, claim->devices[0])->fields["compute_weight"], 5);
  EXPECT_EQ(TermsOf(*claim, claim->devices[0])->fields["compute_limit"], 50);
  ASSERT_TRUE(AddChange(R"({"apiVersion": "x", "kind": "y"})", *claim));
  EXPECT_EQ(TermsOf(*claim, claim->devices[0]).error().code, EINVAL);
}

TEST(VGpuTerms, NoMoreThanTheSchedulerHasCounted) {
  const auto why = [](Json parameters, const Json& consumed) {
    const auto terms = Terms(ClaimObject(Json::array({Config("FromClaim", std::move(parameters))}), consumed));
    return terms ? std::string("nothing") : terms.error().Text();
  };
  const Json consumed = {{"memory", "20Gi"}, {"sm", "40"}};
  EXPECT_EQ(why({{"memory", {{"request", "20Gi"}}}, {"space", "x"}}, consumed), "nothing");
  EXPECT_THAT(why({{"memory", {{"request", "21Gi"}}}, {"space", "x"}}, consumed),
              HasSubstr("VGpuConfig.memory.request is more"));
  EXPECT_EQ(why({{"memory", {{"limit", "100Gi"}}}, {"space", "x"}}, consumed), "nothing");
  EXPECT_EQ(why({{"sm", {{"limit", 30}}}, {"space", "x"}}, consumed), "nothing");
  EXPECT_THAT(why({{"sm", {{"limit", 50}}}, {"space", "x"}}, consumed), HasSubstr("VGpuConfig.sm.limit is more"));
  EXPECT_THAT(why({{"sm", {{"limit", 5}}}, {"space", "x"}}, {{"memory", "1Gi"}}),
              HasSubstr("VGpuConfig.sm.limit is more"));
}

TEST(VGpuTerms, TheStricterEnforcementHolds) {
  const auto terms = AllTerms(ClaimObject(
      Json::array({Config("FromClass", {{"enforce", "kernel"}}), Config("FromClaim", {{"enforce", "shim"}})})));
  ASSERT_TRUE(terms) << terms.error().Text();
  EXPECT_TRUE(terms->kernel_gate);
  auto claim = ReadClaim(ClaimObject(Json::array()), "node");
  ASSERT_TRUE(AddChange(R"({"enforce": "kernel"})", *claim));
  EXPECT_THAT(TermsOf(*claim, claim->devices[0]).error().Text(), HasSubstr("cannot change"));
}

TEST(VGpuTerms, TheKernelGateIsNoSpaces) {
  EXPECT_FALSE(AllTerms(ClaimObject(Json::array()))->kernel_gate);
  const auto terms = AllTerms(ClaimObject(Json::array({Config("FromClaim", {{"enforce", "kernel"}})})));
  ASSERT_TRUE(terms) << terms.error().Text();
  EXPECT_TRUE(terms->kernel_gate);
  EXPECT_FALSE(terms->fields.contains("enforce"));
}

TEST(VGpuTerms, WithoutMemoryThereIsNone) {
  EXPECT_EQ(Terms(ClaimObject(Json::array(), {{"compute", "5"}})).error().code, ENOSPC);
}

TEST(VGpuTerms, TheClaimsParametersGoBeforeThoseOfItsClass) {
  const auto terms = Terms(ClaimObject(
      {Config("FromClaim", {{"compute", {{"weight", 300}}}}),
       Config("FromClass",
              {{"compute", {{"weight", 50}, {"limit", 60}}}, {"memory", {{"max", "100Gi"}}}, {"goal", "p99=20ms"}}),
       Config("FromClaim", {{"goal", "speed=80%"}}, {"other"})}));
  ASSERT_TRUE(terms) << terms.error().Text();
  EXPECT_EQ((*terms)["compute_weight"], 300);
  EXPECT_EQ((*terms)["compute_limit"], 60);
  EXPECT_EQ((*terms)["memory_max"], 100 * kGi);
  EXPECT_EQ((*terms)["goal"], "p99=20ms");
}

TEST(VGpuTerms, SaysWhatIsWrong) {
  const auto why = [](Json parameters) {
    const auto terms = Terms(ClaimObject(Json::array({Config("FromClaim", std::move(parameters))})));
    return terms ? std::string("nothing") : terms.error().Text();
  };
  EXPECT_THAT(why({{"memroy", {{"max", "1Gi"}}}}), HasSubstr("VGpuConfig.memroy is unknown; use memory.request"));
  EXPECT_THAT(why({{"memory", {{"size", "1Gi"}}}}), HasSubstr("VGpuConfig.memory.size is unknown"));
  EXPECT_THAT(why({{"memory", "1Gi"}}), HasSubstr("VGpuConfig.memory is not an object"));
  EXPECT_THAT(why({{"memory", {{"max", "lots"}}}}), HasSubstr("quantity \"lots\" is no number"));
  EXPECT_THAT(why({{"compute", {{"weight", "3"}}}}), HasSubstr("VGpuConfig.compute.weight is not a number"));
  EXPECT_THAT(why({{"goal", 5}}), HasSubstr("not a string"));
  EXPECT_THAT(why({{"space", ""}}), HasSubstr("VGpuConfig.space is empty"));
  EXPECT_THAT(why({{"space", std::string(60, 's')}}), HasSubstr("at most 49 characters") /* with its namespace */);
  EXPECT_THAT(why({{"sm", {{"reserved", "yes"}}}}), HasSubstr("VGpuConfig.sm.reserved is neither true nor false"));
  EXPECT_THAT(why({{"enforce", "hard"}}), HasSubstr("neither \"shim\" nor \"kernel\""));
  EXPECT_THAT(why({{"enforce", "kernel"}, {"space", "x"}}), HasSubstr("cannot be \"kernel\" in a space"));
  Json other = Config("FromClaim", {});
  other["opaque"]["parameters"]["kind"] = "GpuConfig";
  EXPECT_THAT(Terms(ClaimObject(Json::array({other}))).error().Text(),
              HasSubstr("use apiVersion gpu.tessera.dev/v1alpha1"));
}

TEST(ReadClaim, WhatIsNoneOrNotAllocated) {
  EXPECT_EQ(ReadClaim(Json(), "node").error().code, EPROTO);
  EXPECT_EQ(ReadClaim({{"metadata", {{"uid", "u"}}}}, "node").error().code, EPROTO);
  EXPECT_EQ(ReadClaim(ClaimObject(Json::array(), {{"memory", "x"}}), "node").error().code, EINVAL);
  const auto elsewhere = ReadClaim(ClaimObject(Json::array()), "other");
  ASSERT_TRUE(elsewhere);
  EXPECT_TRUE(elsewhere->devices.empty());
}

// Whatever the API server says: an error at worst.
TEST(ReadClaim, AnyObject) {
  std::mt19937 random(7);
  const std::string right =
      ClaimObject(Json::array({Config("FromClaim", {{"compute", {{"weight", 300}}}, {"goal", "x"}})})).dump();
  for (int i = 0; i < 5'000; ++i) {
    std::string text = right;
    for (unsigned n = random() % 4 + 1; n > 0; --n) text[random() % text.size()] = "{}[]\":,01a"[random() % 10];
    const Json object = Json::parse(text, nullptr, false);
    if (object.is_discarded()) continue;
    const auto claim = ReadClaim(object, "node");
    if (!claim) continue;
    for (const AllocatedDevice& device : claim->devices) (void)TermsOf(*claim, device);
  }
}

}  // namespace
}  // namespace tessera::kubernetes
