#include "server/gpu/freezes.h"

#include <gtest/gtest.h>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using FreezesTest = SteeredGpuTest;

TEST_F(FreezesTest, AProcessStandsStillAsLongAsThereIsAnyReason) {
  Member& low = Running(low_);
  Process& process = low.process;
  const auto by_operator = [&](bool frozen) { Freeze(process, frozen); };
  const auto by_vgpu = [&](bool frozen) { Freeze(low_, frozen); };
  const auto by_residency = [&](bool frozen) {
    gpu_.Freezes().SetByResidency(process, frozen ? MemoryHold::kFrozen : MemoryHold::kNone, Now());
  };
  const auto overdrawn = [&](bool frozen) { gpu_.Freezes().SetOverdrawn(process, frozen, Now()); };
  const std::vector<std::function<void(bool)>> reasons = {by_operator, by_vgpu, by_residency, overdrawn};
  for (const auto& first : reasons) {
    for (const auto& second : reasons) {
      first(true);
      EXPECT_TRUE(Frozen(low));
      EXPECT_TRUE(Frozen(low, 20)) << "its copies stand still, too";
      EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
      second(true);
      first(false);
      if (&first != &second) {
        EXPECT_TRUE(Frozen(low, 20));
        EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
      }
      second(false);
      EXPECT_FALSE(Frozen(low));
      EXPECT_FALSE(Frozen(low, 20));
      EXPECT_EQ(low.Order(), wire::GateOrder::kFree);
      EXPECT_EQ(channels_.Freezer().StatusOf(process.pid, 0).reasons, FreezeReason::kNone);
    }
  }
}

TEST_F(FreezesTest, WhereNewWorkOnlyIsForbiddenNoChannelIsFrozen) {
  Member& low = Running(low_);
  gpu_.Freezes().SetByResidency(low.process, MemoryHold::kGate, Now());
  EXPECT_FALSE(Frozen(low));
  EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
  gpu_.Freezes().SetByResidency(low.process, MemoryHold::kNone, Now());
  EXPECT_EQ(low.Order(), wire::GateOrder::kFree);
}

TEST_F(FreezesTest, AProcessThatJoinsAFrozenVGpuIsFrozen) {
  Freeze(low_, true);
  Member& member = Join(low_);
  EXPECT_TRUE(member.process.gate.held);
  MakeContext(member);
  EXPECT_TRUE(Frozen(member));
  Freeze(low_, false);
  EXPECT_FALSE(Frozen(member));
}

// As after a daemon that was killed: its watchdog does not thaw what must not run.
TEST_F(FreezesTest, AProcessThatWasFrozenForMemoryStaysSoWhenItJoinsAgain) {
  Member& low = Running(low_);
  gpu_.Freezes().SetOverdrawn(low.process, true, Now());
  gpu_.Leave(low.process, Now());
  low.process.freeze = {};
  gpu_.Join(low_, low.process, 0, 1, Now());
  EXPECT_TRUE(low.process.freeze.overdrawn);
  EXPECT_TRUE(Frozen(low));
}

}  // namespace
}  // namespace tessera::server
