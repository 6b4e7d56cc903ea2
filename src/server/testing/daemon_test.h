// Shared by the tests of the daemon.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/testing/temporary_folder.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {

// With a run directory that outlives a daemon.
class DaemonTest : public testing::Test {
 protected:
  static Result<VGpuReport> Find(TestDaemon& daemon, const std::string& name) { return daemon.Api().VGpuNamed(name); }
  const TemporaryFolder folder_;
  const std::string run_dir_ = folder_.path();
};

// It may have the node's configuration, whose file only the node's daemon can make.
}  // namespace tessera::server
