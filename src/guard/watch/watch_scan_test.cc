#include "guard/watch/watch_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing/temporary_folder.h"

namespace tessera::guard {
namespace {

namespace fs = std::filesystem;
using testing::Test;

class WatchScanTest : public Test {
 protected:
  void Process(const std::string& pid, const std::vector<std::string>& targets) {
    const fs::path fd = fs::path(proc_.path()) / pid / "fd";
    fs::create_directories(fd);
    for (std::size_t i = 0; i < targets.size(); ++i) fs::create_symlink(targets[i], fd / std::to_string(i));
    std::ofstream(fs::path(proc_.path()) / pid / "comm") << "name of " << pid << '\n';
  }

  const TemporaryFolder proc_;
};

TEST_F(WatchScanTest, FindsWhoHasTheDriverOpen) {
  Process("700", {"/dev/null", "/dev/nvidiactl"});
  Process("31", {"/dev/nvidiactl", "/dev/nvidia0"});
  Process("32", {"/dev/null", "socket:[17]", "/dev/nvidia-uvm"});
  Process("33", {"/var/lib/container/dev/nvidiactl"});
  Process("34", {});
  Process("35", {"/home/me/my-nvidiactl"});
  EXPECT_EQ(FindGpuProcesses(proc_.path()), (std::vector<pid_t>{31, 33, 700}));
}

TEST_F(WatchScanTest, OtherEntriesAreNoProcesses) {
  Process("self", {"/dev/nvidiactl"});
  Process("12a", {"/dev/nvidiactl"});
  Process("-5", {"/dev/nvidiactl"});
  Process("99999999999", {"/dev/nvidiactl"});
  fs::create_directory(fs::path(proc_.path()) / "40");  // ended while we looked
  EXPECT_TRUE(FindGpuProcesses(proc_.path()).empty());
  EXPECT_TRUE(FindGpuProcesses(proc_.path() + "/nowhere").empty());
}

TEST_F(WatchScanTest, NamesAProcess) {
  Process("31", {});
  EXPECT_EQ(ProcessName(31, proc_.path()), "name of 31");
  EXPECT_EQ(ProcessName(32, proc_.path()), "");
}

TEST_F(WatchScanTest, LooksAtTheRealProc) { EXPECT_FALSE(ProcessName(getpid()).empty()); }

}  // namespace
}  // namespace tessera::guard
