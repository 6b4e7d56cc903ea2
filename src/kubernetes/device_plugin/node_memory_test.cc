#include "kubernetes/device_plugin/node_memory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kubernetes/device_plugin/pod_words.h"
#include "kubernetes/objects/amounts.h"

namespace tessera::kubernetes {
namespace {

Json Gpu(const char* uuid, std::uint64_t mebibytes, bool failed = false) {
  return {{"uuid", uuid},
          {"memory_total_bytes", mebibytes * kMebibyte},
          {"memory_reserve_bytes", 24 * kMebibyte},
          {"health", {{"failed", failed}}}};
}

Json VGpu(const char* name, const char* gpu, std::uint64_t mebibytes, double compute) {
  return {{"name", name},
          {"gpu_uuid", gpu},
          {"memory_request_bytes", mebibytes * kMebibyte},
          {"compute_request_pct", compute}};
}

Json Pod(const char* name, const char* vgpus, const char* mebibytes) {
  const Json limits = {{kVGpuResource, vgpus}, {kMemoryResource, mebibytes}};
  return {{"metadata", {{"name", name}, {"namespace", "n"}}},
          {"spec", {{"containers", {{{"name", "main"}, {"resources", {{"limits", limits}}}}}}}}};
}

PodContainer Listed(const char* pod, const std::set<std::string>& ids) {
  return {.namespace_name = "n", .pod = pod, .container = "main", .devices = {{kVGpuResource, ids}}, .claims = {}};
}

const Json kGpus = {{"gpus", {Gpu("a", 1024), Gpu("b", 2048), Gpu("c", 4096, true)}}};

TEST(NodeMemory, PodsMayHaveWhatOthersLeave) {
  const Json vgpus = {{"vgpus",
                       {VGpu("by-hand", "a", 100, 25.5), VGpu("default.claim.0", "b", 200, 0),
                        VGpu("device-plugin.a.0", "a", 500, 50), VGpu("by-hand-too", "c", 1, 1)}}};
  EXPECT_EQ(CapacityOf(kGpus, vgpus), (NodeCapacity{.mebibytes = 900 + 1824, .cores = 74 + 100}));
  EXPECT_EQ(CapacityOf(Json(), Json()), NodeCapacity());
}

TEST(NodeMemory, RoomCountsThoseThatDoNotRunYet) {
  const Json vgpus = {{"vgpus", {VGpu("by-hand", "a", 100, 0), VGpu("device-plugin.b.0", "b", 300, 0)}}};
  const Json pods = {{"items", {Pod("made", "1", "300"), Pod("waits", "3", "600"), Pod("new", "1", "50")}}};
  const auto room =
      RoomOf(kGpus, vgpus, pods,
             {Listed("made", {"b::0"}), Listed("waits", {"a::1", "a::2", "b::2"}), Listed("elsewhere", {"a::3"})});
  EXPECT_EQ(room.at("a"), (900 - 400) * kMebibyte);
  EXPECT_EQ(room.at("b"), (2024 - 300 - 200) * kMebibyte);
}

TEST(NodeMemory, NeedIsThatOfTheLargestThatMayBeMeant) {
  const Json pods = {
      {"items", {Pod("has", "1", "900"), Pod("small", "1", "100"), Pod("big", "1", "500"), Pod("pair", "2", "1600")}}};
  const std::vector<PodContainer> listed = {Listed("has", {"a::0"})};
  EXPECT_EQ(NeedOf(pods, listed, 1), 500 * kMebibyte);
  EXPECT_EQ(NeedOf(pods, listed, 2), 800 * kMebibyte);
  EXPECT_EQ(NeedOf(pods, listed, 3), 0u);
}

}  // namespace
}  // namespace tessera::kubernetes
