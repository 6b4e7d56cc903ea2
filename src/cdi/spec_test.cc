#include "cdi/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cdi {
namespace {

using testing::Contains;
using testing::Not;

const SpecFacts kReal = {.installation = {"/usr"},
                         .run_dir = "/run/tessera",
                         .soft_name = "",
                         .mounts = {},
                         .nodes = {},
                         .devices = {{.vgpu = "team-a", .gpu_uuid = "GPU-1", .nodes = {}}}};

std::vector<std::string> Env(const Json& edits) { return edits["env"].get<std::vector<std::string>>(); }

TEST(CdiSpec, GivesShimSocketAndName) {
  const Json spec = Spec(kReal);
  EXPECT_EQ(spec["kind"], "tessera.dev/vgpu");
  EXPECT_EQ(spec["devices"][0]["name"], "team-a");
  EXPECT_THAT(Env(spec["devices"][0]["containerEdits"]), Contains("TESSERA_VGPU=team-a"));
  EXPECT_THAT(Env(spec["devices"][0]["containerEdits"]), Contains("CUDA_VISIBLE_DEVICES=GPU-1"));
  const Json& edits = spec["containerEdits"];
  EXPECT_THAT(Env(edits), Not(Contains(testing::StartsWith("LD_PRELOAD"))));
  EXPECT_THAT(Env(edits), Contains("TESSERA_RUN_DIR=/run/tessera"));
  ASSERT_EQ(edits["mounts"].size(), 3u);
  EXPECT_EQ(edits["mounts"][0]["hostPath"], "/usr/lib/tessera");
  EXPECT_EQ(edits["mounts"][1]["hostPath"], "/usr/lib/tessera/ld.so.preload");
  EXPECT_EQ(edits["mounts"][1]["containerPath"], "/etc/ld.so.preload");
  EXPECT_EQ(edits["mounts"][2]["hostPath"], "/run/tessera/programs");
  for (const Json& mount : edits["mounts"]) EXPECT_EQ(mount["options"][0], "ro");
  EXPECT_FALSE(edits.contains("deviceNodes"));
}

TEST(CdiSpec, IsOfTheLowestVersionThatItNeeds) {
  EXPECT_EQ(Spec(kReal)["cdiVersion"], "0.3.0");
  SpecFacts facts = kReal;
  facts.devices.push_back({.vgpu = "2024", .gpu_uuid = "GPU-1", .nodes = {}});
  EXPECT_EQ(Spec(facts)["cdiVersion"], "0.5.0");
}

TEST(CdiSpec, HasSoftDriverAndState) {
  SpecFacts facts = kReal;
  facts.soft = true;
  facts.soft_name = "x";
  facts.mounts = {{"/dev/shm/a", "/dev/shm/b", true}};
  const Json edits = Spec(facts)["containerEdits"];
  EXPECT_THAT(Env(edits), Contains("TESSERA_REAL_LIBCUDA=/opt/tessera/lib/soft/libcuda.so.1"));
  EXPECT_THAT(Env(edits), Contains("TESSERA_SOFT_NAME=x"));
  EXPECT_EQ(edits["mounts"][3]["options"][0], "rw");
  EXPECT_EQ(edits["mounts"][3]["containerPath"], "/dev/shm/b");
}

TEST(CdiSpec, NamesWithWhatCdiAllowsAtTheirEnds) {
  for (const char* fits : {"a", "7", "team-a", "2024.x_y-z"}) EXPECT_TRUE(CheckDeviceName(fits)) << fits;
  for (const char* not_so : {"", "-a", "a-", ".a", "a_"}) EXPECT_FALSE(CheckDeviceName(not_so)) << not_so;
}

TEST(CdiSpec, HasTheDriverWhereItIsIncluded) {
  SpecFacts facts = kReal;
  facts.driver = true;
  facts.nodes = {"/dev/nvidiactl"};
  facts.devices[0].nodes = {"/dev/nvidia3"};
  const Json spec = Spec(facts);
  EXPECT_EQ(spec["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidiactl");
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidia3");
  EXPECT_THAT(Env(spec["containerEdits"]), Contains("LD_LIBRARY_PATH=/opt/tessera/driver"));
  EXPECT_THAT(Env(Spec(kReal)["containerEdits"]), Not(Contains(testing::StartsWith("LD_LIBRARY_PATH"))));
}

}  // namespace
}  // namespace tessera::cdi
