#include "kubernetes/slices/slice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::kubernetes {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

Json Gpus() {
  return {{"gpus",
           {{{"uuid", "GPU-911EDE30-6d4d"},
             {"name", "NVIDIA H200"},
             {"memory_total_bytes", 140 * kGiB},
             {"memory_reserve_bytes", 3 * kGiB},
             {"swap", {{"max_bytes", 60 * kGiB}}},
             {"control", {{"by", "channels"}}},
             {"health", {{"failed", false}}}}}}};
}

TEST(Slice, OffersWhatOthersLeave) {
  const Json vgpus = {{"vgpus",
                       {{{"name", "by-hand"},
                         {"gpu_uuid", "GPU-911EDE30-6d4d"},
                         {"memory_request_bytes", 20 * kGiB},
                         {"compute_request_pct", 25.5}},
                        {{"name", "team.llm.01234567-89ab-cdef-0123-456789abcdef"},
                         {"gpu_uuid", "GPU-911EDE30-6d4d"},
                         {"memory_request_bytes", 60 * kGiB},
                         {"compute_request_pct", 40}},
                        {{"name", "elsewhere"}, {"gpu_uuid", "GPU-2"}, {"memory_request_bytes", 9 * kGiB}}}}};
  const auto gpus = OfferedGpus(Gpus(), vgpus);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].memory, 117 * kGiB);
  EXPECT_EQ(gpus[0].compute_pct, 74.5);
  EXPECT_TRUE(gpus[0].enforces_time);
  const Json devices = DevicesOf(gpus);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0]["name"], "gpu-911ede30-6d4d");
  EXPECT_EQ(devices[0]["allowMultipleAllocations"], true);
  const Json& capacity = devices[0]["capacity"];
  EXPECT_EQ(capacity["memory"]["value"], "117Gi");
  EXPECT_EQ(capacity["memory"]["requestPolicy"]["default"], "11968Mi");
  EXPECT_EQ(capacity["memory"]["requestPolicy"]["validRange"], (Json{{"min", "64Mi"}, {"step", "64Mi"}}));
  EXPECT_EQ(capacity["compute"]["value"], "74");
  EXPECT_EQ(capacity["compute"]["requestPolicy"]["default"], "7");
  EXPECT_EQ(capacity["swap"]["value"], "60Gi");
  EXPECT_FALSE(devices[0].contains("taints"));
}

TEST(Slice, AGpuThatIsFullOrHasFailedIsThereStill) {
  auto gpus = OfferedGpus(Gpus(), Json());
  gpus[0].memory = 2 * kMemoryStep;
  gpus[0].swap = kMemoryStep - 1;
  gpus[0].compute_pct = 0.9;
  gpus[0].failed = true;
  Json devices = DevicesOf(gpus);
  EXPECT_EQ(devices[0]["capacity"].size(), 2u);
  EXPECT_EQ(devices[0]["capacity"]["memory"]["requestPolicy"]["default"], "64Mi");
  EXPECT_EQ(devices[0]["taints"][0]["effect"], "NoExecute");
  gpus[0].memory = 2 * kMemoryStep - 1;
  EXPECT_FALSE(DevicesOf(gpus)[0]["capacity"].contains("memory"));
}

TEST(Slice, TellsTheDriverAndWhatNvlinkJoins) {
  Json gpus = Gpus();
  gpus["gpus"][0].update({{"index", 0}, {"driver", "580.159.04"}, {"nvlink_group", 0}});
  gpus["gpus"].push_back({{"uuid", "GPU-2"}, {"index", 1}, {"driver", "soft"}, {"nvlink_group", nullptr}});
  const Json devices = DevicesOf(OfferedGpus(gpus, Json()));
  EXPECT_EQ(devices[0]["attributes"]["driverVersion"], (Json{{"version", "580.159.4"}}));
  EXPECT_EQ(devices[0]["attributes"]["nvlinkGroup"], (Json{{"string", "GPU-911EDE30-6d4d"}}));
  EXPECT_FALSE(devices[1]["attributes"].contains("driverVersion"));
  EXPECT_FALSE(devices[1]["attributes"].contains("nvlinkGroup"));
}

TEST(Slice, IsTheNodes) {
  const Json slice = SliceOf("worker", "n1", DevicesOf({}), 3);
  EXPECT_EQ(slice["spec"]["pool"], (Json{{"name", "worker"}, {"generation", 3}, {"resourceSliceCount", 1}}));
  EXPECT_EQ(slice["metadata"]["ownerReferences"][0]["uid"], "n1");
}

TEST(Slice, AnswersOfAnotherVersionDoNotCrash) {
  for (const Json& gpus : {Json(), Json{{"gpus", 3}}, Json{{"gpus", {1, "x", Json::object()}}}})
    (void)DevicesOf(OfferedGpus(gpus, gpus));
}

}  // namespace
}  // namespace tessera::kubernetes
