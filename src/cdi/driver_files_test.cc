#include "cdi/driver_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/testing/temporary_folder.h"

namespace tessera::cdi {
namespace {

// A machine's files as the driver has them, in a folder.
class DriverFilesTest : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text = "") {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }
  void Link(const std::string& path, const std::string& to) {
    std::filesystem::create_symlink(to, root_.path() + path);
  }

  const TemporaryFolder root_;
};

TEST_F(DriverFilesTest, IsFoundByGpu) {
  Put("/proc/driver/nvidia/gpus/0000:1b:00.0/information",
      "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-aaaa\nDevice Minor: \t 3\n");
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) Put(node);
  Put("/usr/lib64/libcuda.so.550.54.15");
  Put("/usr/lib64/libnvidia-gpucomp.so.550.54.15");
  Link("/usr/lib64/libcuda.so.1", "libcuda.so.550.54.15");
  const auto files = FindDriverFiles(root_.path());
  ASSERT_TRUE(files) << files.error().Text();
  EXPECT_EQ(files->node_of.at("GPU-aaaa"), "/dev/nvidia3");
  EXPECT_EQ(files->nodes, (std::vector<std::string>{"/dev/nvidiactl", "/dev/nvidia-uvm"}));
  ASSERT_EQ(files->libraries.size(), 2u);
  EXPECT_EQ(files->libraries[0].host, "/usr/lib64/libcuda.so.550.54.15");
  EXPECT_EQ(files->libraries[0].container, "/opt/tessera/driver/libcuda.so.1");
  EXPECT_EQ(files->libraries[1].container, "/opt/tessera/driver/libnvidia-gpucomp.so.550.54.15");

  SpecFacts facts;
  facts.devices = {{.vgpu = "a", .gpu_uuid = "GPU-aaaa", .nodes = {}}};
  ASSERT_TRUE(AddDriver(facts, root_.path()));
  EXPECT_TRUE(facts.driver);
  EXPECT_EQ(facts.mounts.size(), 2u);
  EXPECT_EQ(facts.devices[0].nodes, std::vector<std::string>{"/dev/nvidia3"});
  facts.devices[0].gpu_uuid = "GPU-bbbb";
  EXPECT_EQ(AddDriver(facts, root_.path()).error().code, ENOENT);
}

// As Debian's packages of the driver have it: links by /etc/alternatives, which lead from the machine's root.
TEST_F(DriverFilesTest, IsFoundByLinksOfAnotherRoot) {
  Put("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.15");
  Put("/etc/alternatives/README");
  Link("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1", "libcuda.so.550.54.15");
  Link("/etc/alternatives/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1");
  Link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/etc/alternatives/libcuda.so.1");
  Link("/lib", "usr/lib");
  const std::string file = "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.54.15";
  EXPECT_EQ(FileOfMachine(root_.path(), "/usr/lib/x86_64-linux-gnu/libcuda.so.1"), file);
  EXPECT_EQ(FileOfMachine(root_.path(), "/lib/./x86_64-linux-gnu/../x86_64-linux-gnu/libcuda.so.1"), file);
  EXPECT_EQ(FileOfMachine(root_.path(), "/../../lib/x86_64-linux-gnu/libcuda.so.1"), file);
  EXPECT_EQ(FileOfMachine(root_.path(), "/usr/lib/libcuda.so.1"), "");
  Link("/usr/lib/self", "self");
  EXPECT_EQ(FileOfMachine(root_.path(), "/usr/lib/self"), "");
  Link("/usr/lib/passwd", "/etc/passwd");  // which is there outside of the root only
  EXPECT_EQ(FileOfMachine(root_.path(), "/usr/lib/passwd"), "");
}

TEST_F(DriverFilesTest, IsMissedWithAWordOfWhatToDo) {
  const auto none = FindDriverFiles(root_.path());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().Text().find("nvidia.com/gpu"), std::string::npos);
  Put("/proc/driver/nvidia/gpus/0/information", "GPU UUID: \t GPU-aaaa\nDevice Minor: \t 0\n");
  const auto no_library = FindDriverFiles(root_.path());
  ASSERT_FALSE(no_library);
  EXPECT_NE(no_library.error().message.find("libcuda.so.1"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cdi
