#include "mover/pool/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/size.h"
#include "base/testing/temporary_folder.h"

namespace tessera::mover {
namespace {

class FreeMemoryTest : public testing::Test {
 protected:
  FreeMemoryTest() {
    Write("/proc/meminfo", "MemTotal:       100000000 kB\nMemFree:  1 kB\nMemAvailable:   50000000 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text;
  }
  const TemporaryFolder root_;
};

TEST_F(FreeMemoryTest, IsWhatTheMachineHas) {
  EXPECT_EQ(FreeMemory(root_.path()), 50000000 * kKiB);
  EXPECT_EQ(DefaultFloor(root_.path()), 5000000 * kKiB);
  Write("/proc/meminfo", "MemTotal: 1000 kB\n");
  EXPECT_EQ(DefaultFloor(root_.path()), kGiB);
  EXPECT_EQ(FreeMemory(root_.path()), UINT64_MAX);
}

TEST_F(FreeMemoryTest, IsLessInALimitedGroup) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "500\n");
  EXPECT_EQ(FreeMemory(root_.path()), 50000000 * kKiB);
  Write("/sys/fs/cgroup/a/memory.max", "10000\n");
  Write("/sys/fs/cgroup/a/memory.current", "4000\n");
  EXPECT_EQ(FreeMemory(root_.path()), 6000u);
  Write("/sys/fs/cgroup/a/b/memory.max", "400\n");
  EXPECT_EQ(FreeMemory(root_.path()), 0u);
}

TEST_F(FreeMemoryTest, KnowsTheOldGroups) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/1\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");  // in a container the group is at the root
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(FreeMemory(root_.path()), 2000u);
}

TEST_F(FreeMemoryTest, PressureIsTheTimeInWhichSomeProgramWaited) {
  EXPECT_EQ(MemoryPressure(root_.path()), 0u);
  Write("/proc/pressure/memory",
        "some avg10=12.34 avg60=5.00 avg300=1.00 total=77\nfull avg10=90.00 avg60=3.00 avg300=0.50 total=33\n");
  EXPECT_EQ(MemoryPressure(root_.path()), 1234u);
  Write("/proc/pressure/memory", "full avg10=90.00 avg60=3.00 avg300=0.50 total=33\nsome avg10=0.01 avg60=0.00\n");
  EXPECT_EQ(MemoryPressure(root_.path()), 1u);
  for (const char* odd :
       {"", "some", "some avg10=", "some avg10=-3 avg60=1\n", "some avg10=1e300 avg60=1\n", "\n\n\n"}) {
    Write("/proc/pressure/memory", odd);
    EXPECT_EQ(MemoryPressure(root_.path()), 0u) << odd;
  }
}

TEST(MachineMemoryTest, LeavesTheFloor) {
  const MachineMemory machine = {.free = 10 * kGiB, .floor = 4 * kGiB};
  EXPECT_TRUE(machine.MayTake(6 * kGiB));
  EXPECT_EQ(machine.MayTake(6 * kGiB + 1).error().code, ENOMEM);
  EXPECT_EQ(machine.MayTake(11 * kGiB).error().code, ENOMEM);
  EXPECT_EQ(machine.MostFor(0), 6 * kGiB);
  EXPECT_EQ(machine.MostFor(3 * kGiB), 9 * kGiB);
  // What the pool has must become less, by as much as is missing.
  const MachineMemory full = {.free = kGiB, .floor = 4 * kGiB};
  EXPECT_EQ(full.MostFor(5 * kGiB), 2 * kGiB);
  EXPECT_EQ(full.MostFor(kGiB), 0u);
  EXPECT_EQ(MachineMemory{}.MostFor(kGiB), UINT64_MAX);
  EXPECT_TRUE(MachineMemory{}.MayTake(kGiB));
}

}  // namespace
}  // namespace tessera::mover
