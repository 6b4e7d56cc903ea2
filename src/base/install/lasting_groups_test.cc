#include "base/install/lasting_groups.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/install/own_program.h"
#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

class LastingGroups : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* group : {"/cpu", "/memory"}) {
      std::filesystem::create_directory(folder_.path() + group);
      std::ofstream{folder_.path() + group + "/cgroup.procs"};
    }
    std::filesystem::create_directory(folder_.path() + "/none");
    setenv("TESSERA_LASTING_GROUPS",
           (folder_.path() + "/cpu:" + folder_.path() + "/none:" + folder_.path() + "/memory").c_str(), 1);
  }
  void TearDown() override { unsetenv("TESSERA_LASTING_GROUPS"); }
  std::string MembersOf(const std::string& group) const {
    std::string text;
    std::ifstream(folder_.path() + group + "/cgroup.procs") >> text;
    return text;
  }
  std::string Run(bool lasts) const {
    const auto pid = Spawn({.name = "/bin/true", .lasts = lasts});
    EXPECT_TRUE(pid);
    waitpid(*pid, nullptr, 0);
    return std::to_string(*pid);
  }

  const TemporaryFolder folder_;
};

TEST_F(LastingGroups, TakeProgramsThatAreToLast) {
  const std::string pid = Run(true);
  EXPECT_EQ(MembersOf("/cpu"), pid);
  EXPECT_EQ(MembersOf("/memory"), pid);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + "/none"));
}

TEST_F(LastingGroups, TakeNoOthers) {
  Run(false);
  EXPECT_EQ(MembersOf("/cpu"), "");
}

TEST_F(LastingGroups, AreNoneWithoutTheVariable) {
  unsetenv("TESSERA_LASTING_GROUPS");
  PutIntoLastingGroups(getpid());
  EXPECT_EQ(MembersOf("/cpu"), "");
}

}  // namespace
}  // namespace tessera
