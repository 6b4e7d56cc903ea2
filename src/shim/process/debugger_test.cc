#include "shim/process/debugger.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::shim {
namespace {

TEST(DebuggerTest, ATracedProcessKnowsIt) {
  const pid_t child = fork();
  if (child == 0) {
    const bool before = HasDebugger();
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
    _exit(!before && HasDebugger() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tessera::shim
