#include "base/install/run_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tessera {
namespace {

class RunDirTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TESSERA_RUN_DIR");
    unsetenv("XDG_RUNTIME_DIR");
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

TEST_F(RunDirTest, FollowsOnesOwnLinks) {
  ASSERT_TRUE(PrepareRunDir(scratch_ + "/real"));
  std::filesystem::create_symlink("real", scratch_ + "/link");
  std::filesystem::create_symlink(scratch_, scratch_ + "/real/back");
  EXPECT_TRUE(PrepareRunDir(scratch_ + "/link"));
  EXPECT_TRUE(PrepareRunDir(scratch_ + "/link/back/link/new/"));
  EXPECT_TRUE(std::filesystem::is_directory(scratch_ + "/real/new"));
  std::filesystem::create_symlink("loop", scratch_ + "/loop");
  EXPECT_EQ(PrepareRunDir(scratch_ + "/loop").error().code, ELOOP);
}

TEST_F(RunDirTest, RefusesAPlaceThatOthersCanReplace) {
  ASSERT_TRUE(PrepareRunDir(scratch_ + "/open"));
  ASSERT_TRUE(PrepareRunDir(scratch_ + "/open/dir"));
  chmod((scratch_ + "/open").c_str(), 0777);
  EXPECT_EQ(PrepareRunDir(scratch_ + "/open/dir").error().code, EPERM);
  chmod((scratch_ + "/open").c_str(), 01777);
  EXPECT_TRUE(PrepareRunDir(scratch_ + "/open/dir"));
}

// As root: only root can make what is another user's.
TEST_F(RunDirTest, RefusesWhatAnotherUserMadeFirst) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kOther = 54321;
  chmod(scratch_.c_str(), 01777);
  setenv("XDG_RUNTIME_DIR", scratch_.c_str(), 1);
  std::filesystem::create_directory(scratch_ + "/dir");
  ASSERT_EQ(chown((scratch_ + "/dir").c_str(), kOther, kOther), 0);
  EXPECT_EQ(PrepareRunDir(scratch_ + "/dir").error().code, EPERM);
  EXPECT_EQ(PrepareRunDir(scratch_ + "/dir/below").error().code, EPERM);
  // A link to a folder that is root's own: another one a moment later.
  ASSERT_TRUE(PrepareRunDir(scratch_ + "/own"));
  std::filesystem::create_symlink("own", scratch_ + "/link");
  ASSERT_EQ(lchown((scratch_ + "/link").c_str(), kOther, kOther), 0);
  EXPECT_EQ(PrepareRunDir(scratch_ + "/link").error().code, EPERM);
  EXPECT_NE(PrepareRunDir(scratch_ + "/link").error().message.find("link of another user"), std::string::npos);
}

TEST_F(RunDirTest, ClientsCheckWhatNobodyNamed) {
  if (geteuid() == 0) {
    EXPECT_TRUE(CheckRunDir("/run/tessera-soft"));
    EXPECT_TRUE(CheckRunDir(scratch_)) << "a flag named it";
    return;
  }
  setenv("XDG_RUNTIME_DIR", scratch_.c_str(), 1);
  EXPECT_TRUE(CheckRunDir(RunDir("", false))) << "not there";
  ASSERT_TRUE(PrepareRunDir(RunDir("", false)));
  EXPECT_TRUE(CheckRunDir(RunDir("", false)));
  chmod(RunDir("", false).c_str(), 0777);
  EXPECT_EQ(CheckRunDir(RunDir("", false)).error().code, EPERM);
  setenv("TESSERA_RUN_DIR", RunDir("", false).c_str(), 1);
  EXPECT_TRUE(CheckRunDir(RunDir("", false)));
}

}  // namespace
}  // namespace tessera
