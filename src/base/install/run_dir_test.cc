#include "base/install/run_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

class RunDirTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TESSERA_RUN_DIR");
    unsetenv("XDG_RUNTIME_DIR");
  }
  const TemporaryFolder scratch_;
};

TEST_F(RunDirTest, FlagWinsOverEnvironment) {
  setenv("TESSERA_RUN_DIR", "/from/env", 1);
  EXPECT_EQ(RunDir("/from/flag", true), "/from/flag");
  EXPECT_EQ(RunDir("", true), "/from/env");
}

TEST_F(RunDirTest, SoftHasItsOwnDirectory) { EXPECT_EQ(RunDir("", true), RunDir("", false) + "-soft"); }

TEST_F(RunDirTest, MakesAMissingDirectory) {
  ASSERT_TRUE(PrepareRunDir(scratch_.path() + "/new"));
  EXPECT_TRUE(std::filesystem::is_directory(scratch_.path() + "/new"));
}

TEST_F(RunDirTest, RefusesWhatOthersCanWrite) {
  chmod(scratch_.path().c_str(), 0777);
  auto made = PrepareRunDir(scratch_.path());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, EPERM);
  EXPECT_NE(made.error().hint.find("chmod"), std::string::npos);
}

TEST_F(RunDirTest, RefusesAFileAndAMissingParent) {
  fclose(fopen((scratch_.path() + "/file").c_str(), "w"));
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/file").error().code, ENOTDIR);
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/a/b").error().code, ENOENT);
}

TEST_F(RunDirTest, FollowsOnesOwnLinks) {
  ASSERT_TRUE(PrepareRunDir(scratch_.path() + "/real"));
  std::filesystem::create_symlink("real", scratch_.path() + "/link");
  std::filesystem::create_symlink(scratch_.path(), scratch_.path() + "/real/back");
  EXPECT_TRUE(PrepareRunDir(scratch_.path() + "/link"));
  EXPECT_TRUE(PrepareRunDir(scratch_.path() + "/link/back/link/new/"));
  EXPECT_TRUE(std::filesystem::is_directory(scratch_.path() + "/real/new"));
  std::filesystem::create_symlink("loop", scratch_.path() + "/loop");
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/loop").error().code, ELOOP);
}

TEST_F(RunDirTest, RefusesAPlaceThatOthersCanReplace) {
  ASSERT_TRUE(PrepareRunDir(scratch_.path() + "/open"));
  ASSERT_TRUE(PrepareRunDir(scratch_.path() + "/open/dir"));
  chmod((scratch_.path() + "/open").c_str(), 0777);
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/open/dir").error().code, EPERM);
  chmod((scratch_.path() + "/open").c_str(), 01777);
  EXPECT_TRUE(PrepareRunDir(scratch_.path() + "/open/dir"));
}

// As root: only root can make what is another user's.
TEST_F(RunDirTest, RefusesWhatAnotherUserMadeFirst) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kOther = 54321;
  chmod(scratch_.path().c_str(), 01777);
  setenv("XDG_RUNTIME_DIR", scratch_.path().c_str(), 1);
  std::filesystem::create_directory(scratch_.path() + "/dir");
  ASSERT_EQ(chown((scratch_.path() + "/dir").c_str(), kOther, kOther), 0);
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/dir").error().code, EPERM);
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/dir/below").error().code, EPERM);
  // A link to a folder that is root's own: another one a moment later.
  ASSERT_TRUE(PrepareRunDir(scratch_.path() + "/own"));
  std::filesystem::create_symlink("own", scratch_.path() + "/link");
  ASSERT_EQ(lchown((scratch_.path() + "/link").c_str(), kOther, kOther), 0);
  EXPECT_EQ(PrepareRunDir(scratch_.path() + "/link").error().code, EPERM);
  EXPECT_NE(PrepareRunDir(scratch_.path() + "/link").error().message.find("link of another user"), std::string::npos);
}

TEST_F(RunDirTest, ClientsCheckWhatNobodyNamed) {
  if (geteuid() == 0) {
    EXPECT_TRUE(CheckRunDir("/run/tessera-soft"));
    EXPECT_TRUE(CheckRunDir(scratch_.path())) << "a flag named it";
    return;
  }
  setenv("XDG_RUNTIME_DIR", scratch_.path().c_str(), 1);
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
