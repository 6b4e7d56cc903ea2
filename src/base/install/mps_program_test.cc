#include "base/install/mps_program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

class MpsProgramTest : public testing::Test {
 protected:
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }
  std::string Program(mode_t mode) const {
    std::string program = scratch_.path() + "/nvidia-cuda-mps-control";
    std::ofstream{program};
    chmod(program.c_str(), mode);
    return program;
  }
  const TemporaryFolder scratch_;
  const std::string path_ = getenv("PATH");
};

TEST_F(MpsProgramTest, ItIsFoundByThePath) {
  const std::string program = Program(0755);
  setenv("PATH", ("relative:" + scratch_.path()).c_str(), 1);
  const auto found = FindMpsControl(false);
  ASSERT_TRUE(found) << found.error().Text();
  EXPECT_EQ(*found, program);
}

TEST_F(MpsProgramTest, WhatCannotBeExecutedIsNoProgram) {
  const std::string program = Program(0644);
  setenv("PATH", scratch_.path().c_str(), 1);
  const auto found = FindMpsControl(false);
  if (found) {
    EXPECT_NE(*found, program) << "this machine has MPS";
  } else {
    EXPECT_EQ(found.error().code, ENOENT);
    EXPECT_NE(found.error().message.find("MPS is not installed"), std::string::npos);
    EXPECT_NE(found.error().hint, "");
  }
}

// The stand-in of this build, if that is there, and never the driver's.
TEST_F(MpsProgramTest, TheSoftGpuHasItsOwn) {
  setenv("PATH", scratch_.path().c_str(), 1);
  const std::string drivers = Program(0755);
  const auto found = FindMpsControl(true);
  if (found) {
    EXPECT_NE(*found, drivers);
  } else {
    EXPECT_EQ(found.error().code, ENOENT);
  }
}

}  // namespace
}  // namespace tessera
