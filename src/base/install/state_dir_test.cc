#include "base/install/state_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "base/install/run_dir.h"
#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

class StateDirTest : public testing::Test {
 protected:
  const TemporaryFolder scratch_;
};

TEST_F(StateDirTest, DaemonsOfSeveralRunDirectoriesDoNotMeet) {
  EXPECT_EQ(StateDir("/flag", "/run/x", false), "/flag");
  EXPECT_EQ(StateDir("", "/run/x", false), "/run/x");
  EXPECT_NE(StateDir("", DefaultRunDir(true), true), StateDir("", DefaultRunDir(false), false));
}

TEST_F(StateDirTest, UsersKeepItAtHomeByMachine) {
  if (geteuid() == 0) {
    EXPECT_EQ(StateDir("", "/run/tessera", false), "/var/lib/tessera");
    return;
  }
  char host[HOST_NAME_MAX + 1] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(StateDir("", DefaultRunDir(false), false), std::string("/state/tessera/") + host);
  unsetenv("XDG_STATE_HOME");
}

TEST_F(StateDirTest, IsMadeWithAllAboveIt) {
  const std::string path = scratch_.path() + "/a/b/c";
  ASSERT_TRUE(PrepareStateDir(path));
  struct stat st = {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  EXPECT_TRUE(PrepareStateDir(path));
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  EXPECT_EQ(PrepareStateDir(path).error().code, EPERM);
}

}  // namespace
}  // namespace tessera
