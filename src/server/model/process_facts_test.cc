#include "server/model/process_facts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::server {
namespace {

constexpr uid_t kOther = 61001;

TEST(OwnerOf, OfAProcessThatHasEndedIsNotKnown) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(OwnerOf(ended), geteuid()) << "it was not waited for: its pid is still its own";
  waitpid(ended, nullptr, 0);
  EXPECT_EQ(OwnerOf(ended), std::nullopt);
}

// Its folder in /proc is root's.
TEST(OwnerOf, OfAProcessThatMayNotBeTracedIsItsUser) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const uid_t user = geteuid() == 0 ? kOther : geteuid();
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(user) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0) _exit(1);
    close(ready[1]);
    for (;;) pause();
  }
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 0);
  EXPECT_EQ(OwnerOf(child), user);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
}

}  // namespace
}  // namespace tessera::server
