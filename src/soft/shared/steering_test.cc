#include "soft/shared/steering.h"

#include <gtest/gtest.h>

#include <thread>

#include "soft/shared/shared_layout.h"
#include "soft/shared/test_process.h"

namespace tessera::soft {
namespace {

TEST(Steering, SliceOfAProcess) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "2x1GiB,slice=3ms");
  EXPECT_EQ(SliceOf(*state, 1, getpid()), 3 * kMillisecond);
  ASSERT_TRUE(SetSlice(*state, 1, getpid(), 7 * kMillisecond));
  EXPECT_EQ(SliceOf(*state, 1, getpid()), 7 * kMillisecond);
  EXPECT_EQ(SliceOf(*state, 0, getpid()), 3 * kMillisecond);
  EXPECT_EQ(SetSlice(*state, 0, 1 << 30, kMillisecond).error().code, ESRCH);
  EXPECT_EQ(SliceOf(*state, 0, 1 << 30).error().code, ESRCH);
  EXPECT_EQ(SliceOf(*state, 0, 0).error().code, ESRCH);
}

// Settings of a process that ended do not pass to the next process in its slot.
TEST(Steering, ASliceEndsWithItsProcess) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB,slice=3ms");
  const auto attach = [&](TestProcess::Peer& parent) {
    const auto mine = MustAttach(scratch.path(), "");
    parent.Say();
    parent.Hear();
  };
  TestProcess first(attach);
  ASSERT_TRUE(first.Hear());
  ASSERT_TRUE(SetSlice(*state, 0, first.pid(), kMillisecond));
  first.Kill();
  TestProcess second(attach);
  ASSERT_TRUE(second.Hear());
  EXPECT_EQ(SliceOf(*state, 0, second.pid()), 3 * kMillisecond);
}

// A process that freezes another may move its memory as soon as SetFrozen returns.
TEST(Steering, FreezingWaitsForStepsThatHaveBegun) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  TestProcess child([&](TestProcess::Peer& parent) {
    const auto mine = MustAttach(scratch.path(), "");
    SharedUse& use = mine->slot().use[0];
    use.copy_steps = 1;
    parent.Say();
    while (use.frozen != Frozen::kAll) std::this_thread::yield();
    use.copy_steps = 0;
    parent.Hear();
    use.kernel_steps = 1;
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  const auto steps = [&] { return state->layout().slots[1].use[0].copy_steps.load(); };
  // Copies go on.
  ASSERT_TRUE(SetFrozen(*state, 0, child.pid(), Frozen::kKernels));
  EXPECT_EQ(steps(), 1u);
  ASSERT_TRUE(SetFrozen(*state, 0, child.pid(), Frozen::kAll));
  EXPECT_EQ(steps(), 0u);
  ASSERT_TRUE(SetFrozen(*state, 0, child.pid(), Frozen::kNothing));
  child.Say();
  ASSERT_TRUE(child.Hear());
  const Nanos before = MonotonicNow();
  EXPECT_EQ(SetFrozen(*state, 0, child.pid(), Frozen::kAll).error().code, ETIMEDOUT);
  EXPECT_GE(MonotonicNow(), before + kStandstill);
  // A program in the background of a shell must not hold up the scheduler.
  child.Signal(SIGSTOP);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_TRUE(SetFrozen(*state, 0, child.pid(), Frozen::kKernels));
}

}  // namespace
}  // namespace tessera::soft
