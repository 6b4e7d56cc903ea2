// Programs that rest where the driver has no markers: their work is waited for.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "shim/gate/capture.h"
#include "shim/testing/gate_keeper_fixture.h"
#include "shim/testing/held_waits.h"

namespace tessera::shim {
namespace {

// A parked program on a driver without markers, whose work is waited for until the test lets it end.
class GateKeeperWaits : public GateKeeperTest {
 protected:
  GateKeeperWaits() {
    Cuda().TakeNoMarkers(context);
    SubmitWhenOpen(GateOrder::kOpen);
    Order(GateOrder::kClosed);
    Release();
    Pass(20 * kMillisecond);
    keeper.Look();
    waits.Await(1);
  }

  HeldWaits waits{Cuda()};
};

TEST_F(GateKeeperWaits, WorkThatDoesNotEndMakesTheProgramWorkAgain) {
  Pass(100 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(Daemon().Await<wire::Wants>(gpu, 2).waits, 0u);
  keeper.Look();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Released>(gpu), 1u) << "it runs still";
  waits.Let(1);
  Release(2);
}

TEST_F(GateKeeperWaits, AContextThatEndsHoldsUpOnlyItsOwnThread) {
  std::atomic<bool> begins = false, ended = false;
  std::thread ends([&] {
    begins = true;
    keeper.EndContext(context, true, [&] { return ended = true; });
  });
  while (!begins) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    keeper.Look();
    std::this_thread::yield();
  }
  EXPECT_FALSE(ended) << "a thread is in the context";
  waits.Let(1);
  ends.join();
  EXPECT_TRUE(ended);
}

TEST_F(GateKeeperWaits, AReleaseThatEndsNoContextDoesNotWait) {
  keeper.EndContext(context, false, [] { return false; });
  EXPECT_EQ(keeper.GateOf(context), gate);
  waits.Let(1);
}

TEST_F(GateKeeperWaits, ACaptureBeginsMeanwhile) {
  bool changed = false;
  keeper.WithoutMarkers([&] { changed = true; });
  EXPECT_TRUE(changed);
  waits.Let(1);
}

TEST_F(GateKeeperWaits, AChildOfAForkDoesNotWait) {
  constexpr unsigned kDeadlineS = 60;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kDeadlineS);
    keeper.AbandonAfterFork();
    keeper.EndContext(context, true, [] { return true; });
    keeper.Stop();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  waits.Let(1);
}

}  // namespace
}  // namespace tessera::shim
