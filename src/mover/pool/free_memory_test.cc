#include "mover/pool/free_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/size.h"

namespace tessera::mover {
namespace {

class FreeMemoryTest : public testing::Test {
 protected:
  FreeMemoryTest() {
    root_ = testing::TempDir() + "/free-memory-" + std::to_string(getpid());
    Write("/proc/meminfo", "MemTotal:       100000000 kB\nMemFree:  1 kB\nMemAvailable:   50000000 kB\n");
  }
  ~FreeMemoryTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(FreeMemoryTest, IsWhatTheMachineHas) {
  EXPECT_EQ(FreeMemory(root_), 50000000 * kKiB);
  EXPECT_EQ(DefaultFloor(root_), 5000000 * kKiB);
  Write("/proc/meminfo", "MemTotal: 1000 kB\n");
  EXPECT_EQ(DefaultFloor(root_), kGiB);
  EXPECT_EQ(FreeMemory(root_), UINT64_MAX);
}

TEST_F(FreeMemoryTest, IsLessInALimitedGroup) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "500\n");
  EXPECT_EQ(FreeMemory(root_), 50000000 * kKiB);
  Write("/sys/fs/cgroup/a/memory.max", "10000\n");
  Write("/sys/fs/cgroup/a/memory.current", "4000\n");
  EXPECT_EQ(FreeMemory(root_), 6000u);
  Write("/sys/fs/cgroup/a/b/memory.max", "400\n");
  EXPECT_EQ(FreeMemory(root_), 0u);
}

TEST_F(FreeMemoryTest, KnowsTheOldGroups) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/1\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");  // in a container the group is at the root
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(FreeMemory(root_), 2000u);
}

}  // namespace
}  // namespace tessera::mover
