#include "soft/shared/mps_servers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing/wait_until.h"
#include "soft/shared/shared_layout.h"
#include "soft/shared/steering.h"
#include "soft/shared/test_process.h"

namespace tessera::soft {
namespace {

using namespace cuda;  // NOLINT: the driver's own names

std::unique_ptr<SharedState> AttachTo(const ScratchState& scratch) {
  return MustAttach(scratch.path(), "1GiB,sms=132");
}

// A client of the test program, which is the server and has the first slot. It says that it has joined, and tells with
// its exit status, once it hears something, which error has ended it.
class MpsServers : public testing::Test {
 protected:
  void SetUp() override { BecomeMpsServer(*state_, 100); }

  CUresult Join(SharedState& mine, std::optional<double> percentage = {}) {
    return JoinMpsServer(mine, state_->layout().slots[0].process, percentage);
  }
  std::function<void(TestProcess::Peer&)> Client(std::optional<double> percentage = {}) {
    return [=, this](TestProcess::Peer& parent) {
      const auto mine = AttachTo(scratch_);
      if (Join(*mine, percentage) != CUDA_SUCCESS) _exit(99);
      parent.Say();
      parent.Hear();
      const CUresult ended = EndedByMps(*mine);
      _exit(ended == CUDA_SUCCESS ? 0 : ended == CUDA_ERROR_ILLEGAL_ADDRESS ? 1 : 2);
    };
  }

  const ScratchState scratch_;
  const std::unique_ptr<SharedState> state_ = AttachTo(scratch_);
};

TEST_F(MpsServers, APercentageIsRoundedDown) {
  EXPECT_EQ(MultiprocessorsOf(50, 132), 66u);
  EXPECT_EQ(MultiprocessorsOf(30, 132), 39u);
  EXPECT_EQ(MultiprocessorsOf(100, 132), 132u);
  EXPECT_EQ(MultiprocessorsOf(0.1, 132), 1u);
  EXPECT_EQ(MultiprocessorsOf(0, 132), 132u);
  EXPECT_EQ(MultiprocessorsOf(-5, 132), 132u);
  EXPECT_EQ(MultiprocessorsOf(200, 132), 132u);
}

TEST_F(MpsServers, AProcessOutsideHasAllMultiprocessorsAndNoEnd) {
  TestProcess outside([&](TestProcess::Peer&) {
    const auto mine = AttachTo(scratch_);
    EXPECT_FALSE(IsMpsClient(*mine));
    EXPECT_EQ(UsableMultiprocessors(*mine), 132u);
    FaultMpsServer(*mine, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(EndedByMps(*mine), CUDA_SUCCESS);
  });
  EXPECT_EQ(outside.Wait(), 0);
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->state, MpsServerState::kActive);
}

TEST_F(MpsServers, TheLowerCeilingCounts) {
  ASSERT_TRUE(SetMpsPercentage(*state_, getpid(), 60));
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->percentage, 60);
  const auto usable = [&](std::optional<double> percentage, std::uint32_t expected) {
    TestProcess client([&](TestProcess::Peer&) {
      const auto mine = AttachTo(scratch_);
      EXPECT_EQ(Join(*mine, percentage), CUDA_SUCCESS);
      EXPECT_EQ(UsableMultiprocessors(*mine), expected);
    });
    EXPECT_EQ(client.Wait(), 0);
  };
  usable({}, 79);
  usable(25, 33);
  usable(80, 79);
}

TEST_F(MpsServers, ClientsAreListedUntilTheyExit) {
  EXPECT_TRUE(MpsClientsOf(*state_, getpid())->empty());
  TestProcess client(Client());
  ASSERT_TRUE(client.Hear());
  EXPECT_EQ(*MpsClientsOf(*state_, getpid()), std::vector{client.pid()});
  EXPECT_TRUE(MpsClientsOf(*state_, getpid(), 0)->empty());  // it has no context
  client.Kill();
  EXPECT_TRUE(MpsClientsOf(*state_, getpid())->empty());
  EXPECT_EQ(MpsClientsOf(*state_, 1 << 30).error().code, ESRCH);
}

TEST_F(MpsServers, AFaultEndsAllClientsAndKeepsOthersOutUntilTheyHaveExited) {
  TestProcess client(Client());
  ASSERT_TRUE(client.Hear());
  TestProcess culprit([&](TestProcess::Peer& parent) {
    const auto mine = AttachTo(scratch_);
    EXPECT_EQ(Join(*mine), CUDA_SUCCESS);
    FaultMpsServer(*mine, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(EndedByMps(*mine), CUDA_ERROR_ILLEGAL_ADDRESS);
    parent.Say();
  });
  ASSERT_TRUE(culprit.Hear());
  const pid_t pid = culprit.pid();
  EXPECT_EQ(culprit.Wait(), 0);
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->state, MpsServerState::kFault);
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->culprit, pid);
  const auto refused = [&] {
    TestProcess newcomer([&](TestProcess::Peer&) {
      const auto mine = AttachTo(scratch_);
      _exit(Join(*mine) == CUDA_ERROR_MPS_SERVER_NOT_READY ? 1 : 0);
    });
    return newcomer.Wait() == 1;
  };
  EXPECT_TRUE(refused());
  client.Say();
  EXPECT_EQ(client.Wait(), 1);
  EXPECT_FALSE(refused());
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->state, MpsServerState::kActive);
}

TEST_F(MpsServers, TerminateEndsOneClient) {
  TestProcess first(Client()), second(Client());
  ASSERT_TRUE(first.Hear());
  ASSERT_TRUE(second.Hear());
  ASSERT_TRUE(TerminateMpsClient(*state_, getpid(), first.pid()));
  EXPECT_EQ(TerminateMpsClient(*state_, getpid(), getpid()).error().code, ESRCH);
  EXPECT_EQ(LookAtMpsServer(*state_, getpid())->state, MpsServerState::kActive);
  first.Say();
  second.Say();
  EXPECT_EQ(first.Wait(), 2);
  EXPECT_EQ(second.Wait(), 0);
}

TEST_F(MpsServers, AServerThatDrainsTakesNoClients) {
  ASSERT_TRUE(DrainMpsServer(*state_, getpid()));
  TestProcess client(Client());
  EXPECT_EQ(client.Wait(), 99);
}

TEST_F(MpsServers, TheDeathOfAServerEndsItsClients) {
  TestProcess server([&](TestProcess::Peer& parent) {
    const auto mine = AttachTo(scratch_);
    BecomeMpsServer(*mine, 100);
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(server.Hear());
  const auto mine = AttachTo(scratch_);
  ASSERT_EQ(JoinMpsServer(*mine, state_->layout().slots[1].process, {}), CUDA_SUCCESS);
  EXPECT_EQ(EndedByMps(*mine), CUDA_SUCCESS);
  server.Kill();
  tessera::WaitUntil([&] { return EndedByMps(*mine) == CUDA_ERROR_MPS_RPC_FAILURE; });
  EXPECT_EQ(JoinMpsServer(*mine, mine->slot().mps.server, {}), CUDA_ERROR_MPS_CONNECTION_FAILED);
}

// The slice and the freeze of one are those of all, also of who comes later.
TEST_F(MpsServers, AGroupIsSteeredAsOne) {
  TestProcess first(Client());
  ASSERT_TRUE(first.Hear());
  ASSERT_TRUE(SetSlice(*state_, 0, getpid(), 7 * kMillisecond));
  EXPECT_EQ(SliceOf(*state_, 0, first.pid()), 7 * kMillisecond);
  ASSERT_TRUE(SetFrozen(*state_, 0, getpid(), Frozen::kKernels));
  TestProcess second(Client());
  ASSERT_TRUE(second.Hear());
  TestProcess outside([&](TestProcess::Peer& parent) {
    const auto mine = AttachTo(scratch_);
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(outside.Hear());
  const auto frozen = [&](pid_t pid) {
    for (const SharedSlot& slot : state_->layout().slots) {
      if (slot.process.pid == pid) return slot.use[0].frozen == Frozen::kKernels;
    }
    return false;
  };
  EXPECT_TRUE(frozen(first.pid()) && frozen(second.pid()) && frozen(getpid()));
  EXPECT_FALSE(frozen(outside.pid()));
  EXPECT_EQ(SliceOf(*state_, 0, second.pid()), 7 * kMillisecond);
  EXPECT_NE(SliceOf(*state_, 0, outside.pid()), 7 * kMillisecond);
  ASSERT_TRUE(SetFrozen(*state_, 0, second.pid(), Frozen::kNothing));
  EXPECT_FALSE(frozen(first.pid()) || frozen(getpid()));
}

TEST_F(MpsServers, AProcessSaysWhoseClientItIs) {
  const auto processes = state_->Processes(0);
  ASSERT_EQ(processes.size(), 1u);  // the server, for its context
  EXPECT_EQ(processes[0].mps_server, getpid());
}

}  // namespace
}  // namespace tessera::soft
