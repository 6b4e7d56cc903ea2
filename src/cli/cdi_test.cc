#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/cdi_driver.h"
#include "cli/cdi_spec.h"

namespace tessera::cli {
namespace {

using testing::Contains;
using testing::Not;

const CdiFacts kReal = {.installation = {"/usr"},
                        .run_dir = "/run/tessera",
                        .soft_name = "",
                        .mounts = {},
                        .nodes = {},
                        .devices = {{.vgpu = "team-a", .gpu_uuid = "GPU-1", .nodes = {}}}};

std::vector<std::string> Env(const Json& edits) { return edits["env"].get<std::vector<std::string>>(); }

TEST(CdiSpec, GivesShimSocketAndName) {
  const Json spec = CdiSpec(kReal);
  EXPECT_EQ(spec["kind"], "tessera.dev/vgpu");
  EXPECT_EQ(spec["devices"][0]["name"], "team-a");
  EXPECT_THAT(Env(spec["devices"][0]["containerEdits"]), Contains("TESSERA_VGPU=team-a"));
  EXPECT_THAT(Env(spec["devices"][0]["containerEdits"]), Contains("CUDA_VISIBLE_DEVICES=GPU-1"));
  const Json& edits = spec["containerEdits"];
  EXPECT_THAT(Env(edits), Contains("LD_PRELOAD=/opt/tessera/lib/libcuda.so.1:/opt/tessera/lib/libnvidia-ml.so.1"));
  EXPECT_THAT(Env(edits), Contains("TESSERA_RUN_DIR=/run/tessera"));
  ASSERT_EQ(edits["mounts"].size(), 2u);
  EXPECT_EQ(edits["mounts"][0]["hostPath"], "/usr/lib/tessera");
  EXPECT_EQ(edits["mounts"][1]["hostPath"], "/run/tessera/programs");
  for (const Json& mount : edits["mounts"]) EXPECT_EQ(mount["options"][0], "ro");
  EXPECT_FALSE(edits.contains("deviceNodes"));
}

TEST(CdiSpec, IsOfTheLowestVersionThatItNeeds) {
  EXPECT_EQ(CdiSpec(kReal)["cdiVersion"], "0.3.0");
  CdiFacts facts = kReal;
  facts.devices.push_back({.vgpu = "2024", .gpu_uuid = "GPU-1", .nodes = {}});
  EXPECT_EQ(CdiSpec(facts)["cdiVersion"], "0.5.0");
}

TEST(CdiSpec, HasSoftDriverAndState) {
  CdiFacts facts = kReal;
  facts.soft = true;
  facts.soft_name = "x";
  facts.mounts = {{"/dev/shm/a", "/dev/shm/b", true}};
  const Json edits = CdiSpec(facts)["containerEdits"];
  EXPECT_THAT(Env(edits), Contains("TESSERA_REAL_LIBCUDA=/opt/tessera/lib/soft/libcuda.so.1"));
  EXPECT_THAT(Env(edits), Contains("TESSERA_SOFT_NAME=x"));
  EXPECT_EQ(edits["mounts"][2]["options"][0], "rw");
  EXPECT_EQ(edits["mounts"][2]["containerPath"], "/dev/shm/b");
}

TEST(CdiSpec, NamesWithWhatCdiAllowsAtTheirEnds) {
  for (const char* fits : {"a", "7", "team-a", "2024.x_y-z"}) EXPECT_TRUE(CheckCdiName(fits)) << fits;
  for (const char* not_so : {"", "-a", "a-", ".a", "a_"}) EXPECT_FALSE(CheckCdiName(not_so)) << not_so;
}

// A machine's files as the driver has them, in a folder.
class CdiDriver : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = "/tmp/tessera-cdi-test-XXXXXX";
    root_ = mkdtemp(folder.data());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text = "") {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Link(const std::string& path, const std::string& to) { std::filesystem::create_symlink(to, root_ + path); }

  std::string root_;
};

TEST_F(CdiDriver, IsFoundByGpu) {
  Put("/proc/driver/nvidia/gpus/0000:1b:00.0/information",
      "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-aaaa\nDevice Minor: \t 3\n");
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) Put(node);
  Put("/usr/lib64/libcuda.so.550.54.15");
  Put("/usr/lib64/libnvidia-gpucomp.so.550.54.15");
  Link("/usr/lib64/libcuda.so.1", "libcuda.so.550.54.15");
  const auto files = FindDriverFiles(root_);
  ASSERT_TRUE(files) << files.error().Text();
  EXPECT_EQ(files->node_of.at("GPU-aaaa"), "/dev/nvidia3");
  EXPECT_EQ(files->nodes, (std::vector<std::string>{"/dev/nvidiactl", "/dev/nvidia-uvm"}));
  ASSERT_EQ(files->libraries.size(), 2u);
  EXPECT_EQ(files->libraries[0].host, root_ + "/usr/lib64/libcuda.so.550.54.15");
  EXPECT_EQ(files->libraries[0].container, "/opt/tessera/driver/libcuda.so.1");
  EXPECT_EQ(files->libraries[1].container, "/opt/tessera/driver/libnvidia-gpucomp.so.550.54.15");

  CdiFacts facts = kReal;
  facts.driver = true;
  facts.nodes = files->nodes;
  facts.devices[0].nodes = {"/dev/nvidia3"};
  const Json spec = CdiSpec(facts);
  EXPECT_EQ(spec["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidiactl");
  EXPECT_EQ(spec["devices"][0]["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidia3");
  EXPECT_THAT(Env(spec["containerEdits"]), Contains("LD_LIBRARY_PATH=/opt/tessera/driver"));
  EXPECT_THAT(Env(CdiSpec(kReal)["containerEdits"]), Not(Contains(testing::StartsWith("LD_LIBRARY_PATH"))));
}

TEST_F(CdiDriver, IsMissedWithAWordOfWhatToDo) {
  const auto none = FindDriverFiles(root_);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().Text().find("nvidia.com/gpu"), std::string::npos);
  Put("/proc/driver/nvidia/gpus/0/information", "GPU UUID: \t GPU-aaaa\nDevice Minor: \t 0\n");
  const auto no_library = FindDriverFiles(root_);
  ASSERT_FALSE(no_library);
  EXPECT_NE(no_library.error().message.find("libcuda.so.1"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli
