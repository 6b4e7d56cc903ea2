// Shared by the tests of the daemon.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "server/testing/test_daemon.h"

namespace tessera::server {

// With a run directory that outlives a daemon.
class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "daemon_XXXXXX";
    run_dir_ = mkdtemp(pattern.data());
  }
  void TearDown() override { RemoveRunDir(run_dir_); }
  static Result<VGpuReport> Find(TestDaemon& daemon, const std::string& name) { return daemon.Api().VGpuNamed(name); }
  std::string run_dir_;
};

// It may have the node's configuration, whose file only the node's daemon can make.
}  // namespace tessera::server
