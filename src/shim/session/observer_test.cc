// The session of a program that only asks, as NVML's shim does, across a fork.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>

#include "base/fork_mutex.h"
#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "shim/session/session.h"
#include "shim/testing/fake_daemon.h"

namespace tessera::shim {
namespace {

bool Ask() {
  Session& session = Session::Instance();
  if (session.Open(true) != cuda::CUDA_SUCCESS || !session.Managed()) return false;
  wire::View view;
  wire::Header header;
  return session.Ask(wire::Make(wire::Query{}), view, header);
}

// There is one session in a process, so this is one test.
TEST(Observer, AChildAsksOnASessionOfItsOwn) {
  const TemporaryFolder directory;
  setenv("TESSERA_RUN_DIR", directory.path().c_str(), 1);
  setenv("TESSERA_VGPU", "team", 1);
  {
    FakeDaemon daemon(directory.path() + "/client.sock");
    OnForkInChild([] { Session::Instance().AbandonAfterFork(); });
    ASSERT_TRUE(Ask());
    EXPECT_EQ(daemon.Await<wire::Hello>(0).pid, getpid());
    EXPECT_EQ(daemon.Await<wire::Hello>(0).observer, 1u);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      _exit(Ask() ? 0 : 1);
    }
    // Both ask at the same time: no answer goes to the wrong one.
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(Ask());
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(daemon.Await<wire::Hello>(0, 2).pid, pid);
  }
}

}  // namespace
}  // namespace tessera::shim
