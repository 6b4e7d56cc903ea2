#include "base/install/run_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace tessera {
namespace {

class RunDirTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TESSERA_RUN_DIR");
    std::string pattern = testing::TempDir() + "run_dir_XXXXXX";
    scratch_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(scratch_); }
  std::string scratch_;
};

TEST_F(RunDirTest, FlagWinsOverEnvironment) {
  setenv("TESSERA_RUN_DIR", "/from/env", 1);
  EXPECT_EQ(RunDir("/from/flag", true), "/from/flag");
  EXPECT_EQ(RunDir("", true), "/from/env");
}

TEST_F(RunDirTest, SoftHasItsOwnDirectory) { EXPECT_EQ(RunDir("", true), RunDir("", false) + "-soft"); }

TEST_F(RunDirTest, MakesAMissingDirectory) {
  ASSERT_TRUE(PrepareRunDir(scratch_ + "/new"));
  EXPECT_TRUE(std::filesystem::is_directory(scratch_ + "/new"));
}

TEST_F(RunDirTest, RefusesWhatOthersCanWrite) {
  chmod(scratch_.c_str(), 0777);
  auto made = PrepareRunDir(scratch_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, EPERM);
  EXPECT_NE(made.error().hint.find("chmod"), std::string::npos);
}

TEST_F(RunDirTest, RefusesAFileAndAMissingParent) {
  fclose(fopen((scratch_ + "/file").c_str(), "w"));
  EXPECT_EQ(PrepareRunDir(scratch_ + "/file").error().code, ENOTDIR);
  EXPECT_EQ(PrepareRunDir(scratch_ + "/a/b").error().code, ENOENT);
}

}  // namespace
}  // namespace tessera
