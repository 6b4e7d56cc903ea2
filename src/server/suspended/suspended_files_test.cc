#include "server/suspended/suspended_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/temporary_folder.h"

namespace tessera::server {
namespace {

class SuspendedFilesTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/suspended";
  const ProcessName own_ = {getpid(), ProcessStart(getpid()).value_or(0)};
  const wire::Uuid gpu_ = {};

  static void Finish(const UniqueFd& file) { EXPECT_EQ(pwrite(file.Get(), "magic...", 8, 0), 8); }
  bool Exists(const ProcessName& program) const {
    return std::filesystem::exists(SuspendedFiles(path_).PathOf(program, gpu_));
  }
};

TEST_F(SuspendedFilesTest, AFinishedFileIsFoundByTheNextDaemon) {
  {
    SuspendedFiles files(path_);
    const auto made = files.Make(own_, gpu_);
    ASSERT_TRUE(made) << made.error().Text();
    EXPECT_FALSE(files.Open(own_, gpu_)) << "it is not finished";
    Finish(*made);
  }
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  SuspendedFiles files(path_);
  ASSERT_EQ(stat(files.PathOf(own_, gpu_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_TRUE(files.Open(own_, gpu_));
  EXPECT_FALSE(files.Open({own_.pid, own_.start + 1}, gpu_)) << "another program of that pid";
  files.Remove(own_, gpu_);
  EXPECT_FALSE(files.Open(own_, gpu_));
  EXPECT_FALSE(Exists(own_));
}

TEST_F(SuspendedFilesTest, WhatTheLastDaemonDidNotFinishIsRemovedForTheNextMover) {
  ASSERT_TRUE(SuspendedFiles(path_).Make(own_, gpu_));
  SuspendedFiles files(path_);
  EXPECT_FALSE(files.Take(own_, gpu_));
  EXPECT_FALSE(Exists(own_));
  Finish(*files.Make(own_, gpu_));
  EXPECT_TRUE(files.Take(own_, gpu_));
  EXPECT_TRUE(Exists(own_));
}

// It may be the only copy of what the program has.
TEST_F(SuspendedFilesTest, WhatCannotBeReadNowIsKept) {
  SuspendedFiles files(path_);
  Finish(*files.Make(own_, gpu_));
  const std::string file = files.PathOf(own_, gpu_), elsewhere = path_ + "/away";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);  // refused, with ELOOP
  EXPECT_FALSE(files.Take(own_, gpu_));
  std::filesystem::rename(elsewhere, file);
  EXPECT_TRUE(files.Take(own_, gpu_));
  std::filesystem::rename(file, elsewhere);
  EXPECT_FALSE(files.Take(own_, gpu_)) << "the folder may not be mounted";
  std::filesystem::rename(elsewhere, file);
  EXPECT_TRUE(files.Take(own_, gpu_));
}

TEST_F(SuspendedFilesTest, FilesOfProgramsThatHaveEndedAreRemoved) {
  const ProcessName ended = {own_.pid, own_.start + 1};
  SuspendedFiles files(path_);
  ASSERT_TRUE(files.Make(own_, gpu_) && files.Make(ended, gpu_));
  folder_.File("suspended/notes", "somebody's");
  files.RemoveEnded();
  EXPECT_TRUE(Exists(own_));
  EXPECT_FALSE(Exists(ended));
  EXPECT_TRUE(std::filesystem::exists(path_ + "/notes"));
}

TEST_F(SuspendedFilesTest, AFolderThatOthersMayEnterIsRefused) {
  ASSERT_EQ(mkdir(path_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
  const auto made = SuspendedFiles(path_).Make(own_, gpu_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, EPERM);
  EXPECT_NE(made.error().message.find(path_), std::string::npos);
}

TEST_F(SuspendedFilesTest, AFolderThatCannotBeMadeIsAnError) {
  folder_.File("suspended", "no folder");
  EXPECT_EQ(SuspendedFiles(path_).Make(own_, gpu_).error().code, ENOTDIR);
  EXPECT_EQ(SuspendedFiles(folder_.path() + "/missing/folder").Make(own_, gpu_).error().code, ENOENT);
}

TEST_F(SuspendedFilesTest, ALinkIsNotFollowed) {
  SuspendedFiles files(path_);
  ASSERT_TRUE(files.Make(own_, gpu_));
  const std::string victim = folder_.File("victim", "precious");
  std::filesystem::remove(files.PathOf(own_, gpu_));
  std::filesystem::create_symlink(victim, files.PathOf(own_, gpu_));
  EXPECT_EQ(files.Make(own_, gpu_).error().code, ELOOP);
  EXPECT_FALSE(files.Open(own_, gpu_));
}

}  // namespace
}  // namespace tessera::server
