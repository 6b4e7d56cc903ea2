#include "guard/gate/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace tessera::guard {
namespace {

// A process that waits until it is killed.
pid_t Bystander() {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  return pid;
}

void End(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// Two supervisors of one user's programs share the number.
TEST(Processes, OnlySoManyOfAUserAreBehindGates) {
  const auto budget = std::make_shared<std::atomic<std::int64_t>>(2);
  const pid_t pids[] = {Bystander(), Bystander(), Bystander()};
  auto one = Processes::Create(budget);
  ASSERT_TRUE(one);
  {
    auto other = Processes::Create(budget);
    ASSERT_TRUE(other);
    EXPECT_NE(one->Of(pids[0], 1), nullptr);
    EXPECT_NE(one->Of(pids[0], 1), nullptr) << "it is known already";
    EXPECT_NE(other->Of(pids[1], 1), nullptr);
    EXPECT_EQ(*budget, 0);
    EXPECT_EQ(other->Of(pids[2], 1), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    one->Forget(pids[0]);
    EXPECT_NE(other->Of(pids[2], 1), nullptr);
    EXPECT_EQ(one->Of(pids[0], 1), nullptr);
  }
  EXPECT_EQ(*budget, 2) << "all is given back with the supervisor";
  EXPECT_NE(one->Of(pids[0], 1), nullptr);
  for (const pid_t pid : pids) End(pid);
}

}  // namespace
}  // namespace tessera::guard
