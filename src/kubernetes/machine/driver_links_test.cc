#include "kubernetes/machine/driver_links.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/testing/temporary_folder.h"

namespace tessera::kubernetes {
namespace {

namespace fs = std::filesystem;

TEST(DriverLinks, LeadToTheMachinesFiles) {
  const TemporaryFolder folder;
  const std::string root = folder.path(), links = root + "/links";
  const auto put = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  EXPECT_EQ(LinkDriver(root, links).error().code, ENOENT);
  put("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "GPU UUID: \t GPU-aaaa\nDevice Minor: \t 0\n");
  put("/usr/lib64/libcuda.so.550.54.15", "");
  put("/usr/lib64/libnvidia-ml.so.550.54.15", "");
  fs::create_symlink("/usr/lib64/libcuda.so.550.54.15", root + "/usr/lib64/libcuda.so.1");
  fs::create_symlink("libnvidia-ml.so.550.54.15", root + "/usr/lib64/libnvidia-ml.so.1");
  put("/usr/bin/nvidia-cuda-mps-control", "");
  put("/links/lib64/libcuda.so.1", "of an earlier driver");
  const auto linked = LinkDriver(root, links);
  ASSERT_TRUE(linked) << linked.error().Text();
  EXPECT_EQ(fs::read_symlink(links + "/lib64/libcuda.so.1"), root + "/usr/lib64/libcuda.so.550.54.15");
  EXPECT_EQ(fs::read_symlink(links + "/lib64/libnvidia-ml.so.1"), root + "/usr/lib64/libnvidia-ml.so.550.54.15");
  EXPECT_EQ(fs::read_symlink(links + "/bin/nvidia-cuda-mps-control"), root + "/usr/bin/nvidia-cuda-mps-control");
  EXPECT_FALSE(fs::exists(links + "/bin/nvidia-cuda-mps-server"));
}

}  // namespace
}  // namespace tessera::kubernetes
