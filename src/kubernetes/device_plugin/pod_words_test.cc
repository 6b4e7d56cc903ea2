#include "kubernetes/device_plugin/pod_words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "kubernetes/device_plugin/strays.h"
#include "kubernetes/objects/amounts.h"

namespace tessera::kubernetes {
namespace {

Json Pod(const Json& limits, const Json& annotations = Json::object()) {
  return {{"metadata", {{"name", "p"}, {"namespace", "n"}, {"annotations", annotations}}},
          {"spec", {{"containers", {{{"name", "side"}}, {{"name", "main"}, {"resources", {{"limits", limits}}}}}}}}};
}

ContainerVGpu Of(std::uint32_t devices) { return {.gpu_uuid = "a", .name = "v", .devices = devices}; }

std::string Refusal(const Json& limits, const Json& annotations) {
  const auto terms = TermsOf(Pod(limits, annotations), "main", Of(1));
  return terms ? "" : terms.error().Text();
}

TEST(PodWords, WithoutAnyAGpuIsSharedByWeight) {
  EXPECT_EQ(*TermsOf(Pod({{kVGpuResource, "1"}}), "main", Of(1)), (Json{{"compute_weight", 100}}));
  EXPECT_EQ(TermsOf(Of(3)), (Json{{"compute_weight", 300}}));
  EXPECT_EQ(TermsOf(Of(1000)), (Json{{"compute_weight", 10000}}));
  EXPECT_EQ(TermsOf(Pod({}), "other", Of(1)).error().code, ENOENT);
}

TEST(PodWords, CountedResourcesAreTheContainersInAll) {
  const Json limits = {{kVGpuResource, "4"}, {kMemoryResource, "8k"}, {kComputeResource, "80"}};
  const Json one = *TermsOf(Pod(limits), "main", Of(1));
  EXPECT_EQ(one["memory_request"], 2000 * kMebibyte);
  EXPECT_EQ(one["memory_limit"], 2000 * kMebibyte);
  EXPECT_EQ(one["memory_max"], 2000 * kMebibyte);
  EXPECT_EQ(one["compute_request"], 20.0);
  EXPECT_EQ(one["compute_limit"], 20.0);
  EXPECT_EQ((*TermsOf(Pod(limits), "main", Of(3)))["memory_limit"], 6000 * kMebibyte);
  EXPECT_EQ(MemoryForEach(Pod(limits), "main"), 2000 * kMebibyte);
  EXPECT_EQ(MemoryForEach(Pod(limits), "side"), 0u);
}

TEST(PodWords, APartOfTheSmsIsThatPartOfTheTime) {
  const auto compute = [](const Json& annotations) {
    const Json terms = *TermsOf(Pod({{kVGpuResource, "1"}, {kComputeResource, "10"}}, annotations), "main", Of(1));
    return std::pair(terms["compute_request"].get<double>(), terms["compute_limit"].get<double>());
  };
  EXPECT_EQ(compute({{"tessera.dev/gpu_quota_request", "0.5"}, {"tessera.dev/gpu_quota_limit", "1"}}),
            std::pair(50.0, 100.0));
  EXPECT_EQ(compute({{"tessera.dev/gpu_quota_request", "0.5"}, {"tessera.dev/gpu_sm_partition", "30"}}),
            std::pair(15.0, 30.0));
  EXPECT_EQ(compute({{"tessera.dev/gpu_sm_partition", "30"}}), std::pair(30.0, 30.0));
  EXPECT_EQ(compute({{"tessera.dev/gpu_quota_limit", "0.5"}, {"tessera.dev/gpu_sm_partition", "40"}}),
            std::pair(10.0, 20.0));
}

TEST(PodWords, AnnotationsSayTheRest) {
  const Json terms = *TermsOf(Pod({{kVGpuResource, "1"}}, {{"tessera.dev/gpu_mem", "2700000000"},
                                                           {"tessera.dev/memory-max", "8Gi"},
                                                           {"tessera.dev/weight", "300"},
                                                           {"tessera.dev/priority", "1"},
                                                           {"tessera.dev/goal", "p99=20ms"},
                                                           {"example.com/other", "x"}}),
                              "main", Of(1));
  EXPECT_EQ(terms["memory_request"], 2700000000);
  EXPECT_EQ(terms["memory_limit"], 2700000000);
  EXPECT_EQ(terms["memory_max"], 8ull << 30);
  EXPECT_EQ(terms["compute_weight"], "300");
  EXPECT_EQ(terms["compute_priority"], "1");
  EXPECT_EQ(terms["goal"], "p99=20ms");
  EXPECT_EQ(terms.size(), 6u);
}

TEST(PodWords, WhatIsWrongIsNamed) {
  EXPECT_EQ(
      Refusal({}, {{"tessera.dev/wieght", "1"}}),
      "annotation tessera.dev/wieght is unknown; use gpu_quota_request, gpu_quota_limit, gpu_sm_partition, gpu_mem, "
      "memory-max, weight, priority, goal behind tessera.dev/");
  for (const char* wrong : {"", "0", "-1", "1.5", "half", "0.5x"})
    EXPECT_EQ(Refusal({}, {{"tessera.dev/gpu_quota_limit", wrong}}),
              std::string("annotation tessera.dev/gpu_quota_limit is \"") + wrong +
                  "\"; it is a number above 0, and 1 at most");
  EXPECT_TRUE(
      Refusal({}, {{"tessera.dev/memory-max", "x"}}).starts_with("annotation tessera.dev/memory-max is wrong: "));
  EXPECT_TRUE(Refusal({{kMemoryResource, "x"}}, {}).starts_with("limit tessera.dev/gpumem is wrong: "));
  EXPECT_EQ(Refusal({{kMemoryResource, "1"}}, {{"tessera.dev/gpu_mem", "1Gi"}}),
            "the pod has tessera.dev/gpumem and annotation tessera.dev/gpu_mem; leave one of them out");
  EXPECT_EQ(MemoryForEach(Pod({{kMemoryResource, "x"}}), "main"), 0u);
}

// Whatever a pod says: an error at worst.
TEST(PodWords, AnyPod) {
  std::mt19937 random(7);
  const std::string right = Pod({{kVGpuResource, "2"}, {kMemoryResource, "8k"}},
                                {{"tessera.dev/gpu_quota_limit", "0.5"}, {"tessera.dev/memory-max", "8Gi"}})
                                .dump();
  for (int i = 0; i < 5000; ++i) {
    std::string text = right;
    for (unsigned n = random() % 4 + 1; n > 0; --n) text[random() % text.size()] = "{}[]\":,01a"[random() % 10];
    const Json pod = Json::parse(text, nullptr, false);
    if (pod.is_discarded()) continue;
    (void)TermsOf(pod, "main", Of(1));
    (void)MemoryForEach(pod, "side");
  }
}

TEST(Strays, OnlyWhatIsUnwantedForSomeLooksIsOne) {
  using Names = std::vector<std::string>;
  Strays strays;
  for (int i = 1; i < Strays::kLooks; ++i) EXPECT_EQ(strays.Look({"a", "b", "c"}, {"b"}), Names());
  EXPECT_EQ(strays.Look({"a", "b", "c"}, {"b", "c"}), Names{"a"});
  EXPECT_EQ(strays.Look({"a", "b", "c"}, {"b"}), Names{"a"}) << "it is still there";
  EXPECT_EQ(strays.Look({"b", "c"}, {"b"}), Names());
  EXPECT_EQ(strays.Look({"a", "b", "c"}, {"b"}), Names{"c"}) << "a is new";
}

}  // namespace
}  // namespace tessera::kubernetes
