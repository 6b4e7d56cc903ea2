#include "base/install/own_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/unique_fd.h"

namespace tessera {
namespace {

// All that a shell's command writes.
std::string Output(const std::string& command, std::vector<std::string> without, std::vector<std::string> with) {
  int ends[2] = {};
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const auto pid = Spawn({.name = "/bin/sh",
                          .arguments = {"-c", command},
                          .files = {{writing.Get(), STDOUT_FILENO}},
                          .without = std::move(without),
                          .with = std::move(with)});
  writing.Reset();
  if (!pid) return pid.error().Text();
  std::string text(4096, '\0');
  const ssize_t length = read(reading.Get(), text.data(), text.size());
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(OwnProgram, AProgramByItsPathHasTheEnvironmentThatIsSaid) {
  setenv("KEPT_VARIABLE", "1", 1);
  setenv("LOST_VARIABLE", "2", 1);
  setenv("CUDA_OF_OTHERS", "3", 1);
  setenv("CHANGED_VARIABLE", "4", 1);
  EXPECT_EQ(Output("echo $KEPT_VARIABLE-$LOST_VARIABLE-$CUDA_OF_OTHERS-$CHANGED_VARIABLE-$CUDA_GIVEN",
                   {"LOST_VARIABLE"}, {"CHANGED_VARIABLE=5", "CUDA_GIVEN=6"}),
            "1---5-6\n");
}

// In that user's groups, and no others.
TEST(OwnProgram, RootRunsItAsAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  int ends[2] = {};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  // A user without a name: the group with its number may be that of others.
  const auto pid = Spawn({.name = "/bin/sh",
                          .arguments = {"-c", "id -u; id -g; id -G; echo $GIVEN"},
                          .files = {{writing.Get(), STDOUT_FILENO}},
                          .with = {"GIVEN=1"},
                          .user = 54321});
  ASSERT_TRUE(pid) << pid.error().Text();
  writing.Reset();
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  char text[256] = {};
  EXPECT_GT(read(reading.Get(), text, sizeof text - 1), 0);
  EXPECT_STREQ(text, "54321\n65534\n65534\n1\n");
}

TEST(OwnProgram, ItsOwnUserNeedsNoChange) {
  const auto pid = Spawn({.name = "/bin/true", .user = geteuid()});
  ASSERT_TRUE(pid) << pid.error().Text();
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(status, 0);
}

TEST(OwnProgram, WhatCannotRunIsNamed) {
  const auto pid = Spawn({.name = "/nowhere/program"});
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code, ENOENT);
  EXPECT_EQ(pid.error().message, "cannot run /nowhere/program: No such file or directory");
}

}  // namespace
}  // namespace tessera
