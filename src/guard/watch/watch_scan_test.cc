#include "guard/watch/watch_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tessera::guard {
namespace {

namespace fs = std::filesystem;
using testing::Test;

class WatchScanTest : public Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "watch_scan_XXXXXX";
    proc_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(proc_); }

  void Process(const std::string& pid, const std::vector<std::string>& targets) {
    const fs::path fd = fs::path(proc_) / pid / "fd";
    fs::create_directories(fd);
    for (std::size_t i = 0; i < targets.size(); ++i) fs::create_symlink(targets[i], fd / std::to_string(i));
    std::ofstream(fs::path(proc_) / pid / "comm") << "name of " << pid << '\n';
  }

  std::string proc_;
};

TEST_F(WatchScanTest, FindsWhoHasTheDriverOpen) {
  Process("700", {"/dev/null", "/dev/nvidiactl"});
  Process("31", {"/dev/nvidiactl", "/dev/nvidia0"});
  Process("32", {"/dev/null", "socket:[17]", "/dev/nvidia-uvm"});
  Process("33", {"/var/lib/container/dev/nvidiactl"});
  Process("34", {});
  Process("35", {"/home/me/my-nvidiactl"});
  EXPECT_EQ(FindGpuProcesses(proc_), (std::vector<pid_t>{31, 33, 700}));
}

TEST_F(WatchScanTest, OtherEntriesAreNoProcesses) {
  Process("self", {"/dev/nvidiactl"});
  Process("12a", {"/dev/nvidiactl"});
  Process("-5", {"/dev/nvidiactl"});
  Process("99999999999", {"/dev/nvidiactl"});
  fs::create_directory(fs::path(proc_) / "40");  // ended while we looked
  EXPECT_TRUE(FindGpuProcesses(proc_).empty());
  EXPECT_TRUE(FindGpuProcesses(proc_ + "/nowhere").empty());
}

TEST_F(WatchScanTest, NamesAProcess) {
  Process("31", {});
  EXPECT_EQ(ProcessName(31, proc_), "name of 31");
  EXPECT_EQ(ProcessName(32, proc_), "");
}

TEST_F(WatchScanTest, LooksAtTheRealProc) { EXPECT_FALSE(ProcessName(getpid()).empty()); }

}  // namespace
}  // namespace tessera::guard
