#include "kubernetes/pods/pod_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::kubernetes {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

PreparedClaim Prepared(const std::string& name, std::vector<PreparedDevice> devices) {
  return {.namespace_name = "ml", .name = name, .complete = true, .devices = std::move(devices)};
}

const Checkpoint::Claims kClaims = {
    {"u1",
     Prepared("llm", {{.request = "gpu", .pool = "n", .device = "gpu-0", .share_id = "s1", .vgpu = "ml.llm.u1"}})},
    {"u2",
     Prepared("job", {{.request = "gpu", .pool = "n", .device = "gpu-0", .share_id = "s2", .vgpu = "ml.job.u2"},
                      {.request = "gpu", .pool = "n", .device = "gpu-1", .share_id = "s3", .vgpu = "ml.job.u2-1"}})}};

ContainerClaim Used(const std::string& name, const std::string& device, const std::string& share) {
  return {.namespace_name = "ml",
          .name = name,
          .driver = "gpu.tessera.dev",
          .pool = "n",
          .device = device,
          .share_id = share};
}

PodContainer Container(const std::string& pod, const std::string& name, std::vector<ContainerClaim> claims) {
  return {.namespace_name = "ml", .pod = pod, .container = name, .devices = {}, .claims = std::move(claims)};
}

TEST(ClaimVGpus, AreThoseOfItsNamesDevicesAndShares) {
  EXPECT_THAT(ClaimVGpus(Container("a", "c", {Used("llm", "gpu-0", "s1")}), kClaims), ElementsAre("ml.llm.u1"));
  EXPECT_THAT(ClaimVGpus(Container("a", "c", {Used("job", "gpu-0", "s2"), Used("job", "gpu-1", "s3")}), kClaims),
              UnorderedElementsAre("ml.job.u2", "ml.job.u2-1"));
  for (const auto& other :
       {Used("llm", "gpu-0", "of-before"), Used("llm", "gpu-1", "s1"), Used("other", "gpu-0", "s1")})
    EXPECT_THAT(ClaimVGpus(Container("a", "c", {other}), kClaims), IsEmpty()) << other.name;
  auto of_others = Used("llm", "gpu-0", "s1");
  of_others.driver = "gpu.example.com";
  EXPECT_THAT(ClaimVGpus(Container("a", "c", {of_others}), kClaims), IsEmpty());
  auto elsewhere = Used("llm", "gpu-0", "s1");
  elsewhere.namespace_name = "web";
  EXPECT_THAT(ClaimVGpus(Container("a", "c", {elsewhere}), kClaims), IsEmpty());
}

// Of an older kubelet.
TEST(ClaimVGpus, NamesAloneAreEnough) {
  const ContainerClaim named{
      .namespace_name = "ml", .name = "job", .driver = {}, .pool = {}, .device = {}, .share_id = {}};
  EXPECT_THAT(ClaimVGpus(Container("a", "c", {named}), kClaims), UnorderedElementsAre("ml.job.u2", "ml.job.u2-1"));
}

TEST(PodsOf, NameTheContainerOfAVGpu) {
  const auto pods =
      PodsOf({Container("llm-0", "serve", {Used("llm", "gpu-0", "s1")}), Container("web", "nginx", {})}, kClaims, {});
  EXPECT_EQ(pods.labels, (std::map<std::string, Labels>{
                             {"ml.llm.u1", {{"namespace", "ml"}, {"pod", "llm-0"}, {"container", "serve"}}},
                             {"ml.job.u2", {{"namespace", "ml"}}},
                             {"ml.job.u2-1", {{"namespace", "ml"}}}}));
  EXPECT_FALSE(pods.complete);
}

TEST(PodsOf, SeveralContainersHaveWhatTheyAgreeIn) {
  const auto same_pod =
      PodsOf({Container("a", "one", {Used("llm", "gpu-0", "s1")}), Container("a", "two", {Used("llm", "gpu-0", "s1")})},
             kClaims, {});
  EXPECT_EQ(same_pod.labels.at("ml.llm.u1"), (Labels{{"namespace", "ml"}, {"pod", "a"}}));
  const auto pods = PodsOf(
      {Container("a", "main", {Used("llm", "gpu-0", "s1")}),
       Container("b", "main", {Used("llm", "gpu-0", "s1"), Used("job", "gpu-0", "s2"), Used("job", "gpu-1", "s3")}),
       Container("c", "main", {Used("llm", "gpu-0", "s1")})},
      kClaims, {});
  EXPECT_EQ(pods.labels.at("ml.llm.u1"), (Labels{{"namespace", "ml"}, {"container", "main"}}));
  EXPECT_TRUE(pods.complete);
}

TEST(PodsOf, TheDevicePluginsVGpusHavePodsToo) {
  const auto pods = PodsOf({Container("a", "c", {})}, {}, [](const PodContainer& container) {
    return std::vector<std::string>{"device-plugin." + container.pod};
  });
  EXPECT_EQ(
      pods.labels,
      (std::map<std::string, Labels>{{"device-plugin.a", {{"namespace", "ml"}, {"pod", "a"}, {"container", "c"}}}}));
  EXPECT_TRUE(pods.complete);
}

TEST(PluginVGpus, AreNamedByTheirDevices) {
  PodContainer container = Container("a", "c", {});
  EXPECT_THAT(PluginVGpus(container), IsEmpty());
  container.devices["example.com/gpu"] = {"GPU-0::1"};
  EXPECT_THAT(PluginVGpus(container), IsEmpty());
  container.devices["tessera.dev/vgpu"] = {"GPU-0::3", "GPU-0::1", "GPU-1::0"};
  EXPECT_THAT(PluginVGpus(container), ElementsAre("device-plugin.GPU-0.1", "device-plugin.GPU-1.0"));
  container.devices["tessera.dev/vgpu"] = {"nonsense"};
  EXPECT_THAT(PluginVGpus(container), IsEmpty());
}

TEST(WithPod, LeavesLabelsOfOthersAlone) {
  const Labels before = {{"team", "a"}, {"pod", "old"}, {"container", "c"}};
  EXPECT_EQ(WithPod(before, {{"namespace", "ml"}, {"pod", "new"}}),
            (Labels{{"team", "a"}, {"namespace", "ml"}, {"pod", "new"}}));
  EXPECT_EQ(WithPod({}, {}), Labels());
}

}  // namespace
}  // namespace tessera::kubernetes
