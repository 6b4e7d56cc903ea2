#include "channel/control/soft_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "channel/rm/driver_abi.h"
#include "soft/shared/arbiter.h"
#include "soft/shared/test_process.h"

namespace tessera::channel {
namespace {

// A million instructions a second: one instruction is a microsecond.
constexpr const char* kSpec = "2x1GiB,speed=1M,slice=1ms";

std::unique_ptr<soft::SharedState> MustAttach(const std::string& path) {
  auto state = soft::SharedState::Attach(path, kSpec);
  EXPECT_TRUE(state) << state.error().Text();
  return state ? std::move(*state) : nullptr;
}

class SoftControlTest : public testing::Test {
 protected:
  Nanos BusyOf(pid_t pid) {
    const auto processes = state_->Processes(0);
    const auto found = std::ranges::find(processes, pid, &soft::ProcessUse::pid);
    return found == processes.end() ? 0 : found->busy;
  }
  // Until `pid` has executed 5 ms more.
  void WaitForProgress(pid_t pid) {
    const Nanos before = BusyOf(pid);
    while (BusyOf(pid) < before + 5 * kMillisecond) std::this_thread::yield();
  }
  // A process that always has work for GPU 0.
  std::function<void(soft::TestProcess::Peer&)> Busy() {
    return [this](soft::TestProcess::Peer& parent) {
      const auto mine = MustAttach(scratch_.path());
      soft::Arbiter arbiter(*mine, 0);
      parent.Say();
      for (arbiter.Acquire();;) {
        arbiter.Charge(100);
        if (arbiter.ShouldYield()) arbiter.Yield();
      }
    };
  }

  const soft::ScratchState scratch_;
  const std::unique_ptr<soft::SharedState> state_ = MustAttach(scratch_.path());
  const std::unique_ptr<Control> control_ = MakeSoftControl(MustAttach(scratch_.path()));
};

TEST_F(SoftControlTest, AFrozenProcessMakesNoProgress) {
  soft::TestProcess frozen(Busy()), other(Busy());
  ASSERT_TRUE(frozen.Hear());
  ASSERT_TRUE(other.Hear());
  const Target target = {.pid = frozen.pid()};
  WaitForProgress(frozen.pid());
  ASSERT_TRUE(control_->Freeze(0, {&target, 1}, Reach::kCompute));
  // It may finish the step that it is in: it has left the GPU when another one has got it.
  WaitForProgress(other.pid());
  const Nanos stopped_at = BusyOf(frozen.pid());
  for (int i = 0; i < 5; ++i) {
    WaitForProgress(other.pid());
    EXPECT_EQ(BusyOf(frozen.pid()), stopped_at);
  }
  ASSERT_TRUE(control_->Freeze(0, {&target, 1}, Reach::kAll));
  ASSERT_TRUE(control_->Thaw(0, {&target, 1}, Reach::kAll));
  WaitForProgress(frozen.pid());
  EXPECT_EQ(control_->Counts().freezes, 2u);
  EXPECT_EQ(control_->Counts().thaws, 1u);
}

TEST_F(SoftControlTest, AFrozenProcessCanBeKilled) {
  soft::TestProcess frozen(Busy()), other(Busy());
  ASSERT_TRUE(frozen.Hear());
  ASSERT_TRUE(other.Hear());
  const Target target = {.pid = frozen.pid()};
  ASSERT_TRUE(control_->Freeze(0, {&target, 1}, Reach::kAll));
  WaitForProgress(other.pid());
  frozen.Kill();
  WaitForProgress(other.pid());
  EXPECT_TRUE(control_->Thaw(0, {&target, 1}, Reach::kAll));
}

TEST_F(SoftControlTest, SlicesAreOfProcesses) {
  soft::TestProcess child(Busy());
  ASSERT_TRUE(child.Hear());
  const Target target = {.pid = child.pid()};
  EXPECT_EQ(control_->Slice(0, target), kMillisecond);
  ASSERT_TRUE(control_->SetSlice(0, target, 5 * kMillisecond));
  EXPECT_EQ(control_->Slice(0, target), 5 * kMillisecond);
  EXPECT_EQ(control_->Slice(1, target), kMillisecond);
  EXPECT_EQ(control_->SetSlice(0, target, 0).error().code, ERANGE);
  EXPECT_EQ(control_->Counts().slices, 1u);
}

TEST_F(SoftControlTest, WhoIsNotThereIsPassedOver) {
  const Target targets[] = {{.pid = 1 << 30}, {.pid = getpid()}};
  ASSERT_TRUE(control_->Freeze(1, targets, Reach::kAll));
  state_->AddContexts(1, 1);
  const auto processes = state_->Processes(1);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].frozen, soft::Frozen::kAll);
  ASSERT_TRUE(control_->Thaw(1, targets, Reach::kAll));
  EXPECT_EQ(state_->Processes(1)[0].frozen, soft::Frozen::kNothing);
  EXPECT_EQ(control_->SetSlice(1, targets[0], kMillisecond).error().code, ESRCH);
  EXPECT_EQ(control_->Slice(1, targets[0]).error().code, ESRCH);
  EXPECT_EQ(control_->Counts().failures, 1u);
}

TEST_F(SoftControlTest, OnlyGpusThatExist) {
  EXPECT_EQ(control_->DeviceInstance(1), 1u);
  EXPECT_EQ(control_->DeviceInstance(2), abi::kNoGpu);
  EXPECT_EQ(control_->Freeze(2, {}, Reach::kAll).error().code, ENODEV);
  EXPECT_EQ(control_->Slice(2, {}).error().code, ENODEV);
}

}  // namespace
}  // namespace tessera::channel
