#include "sched/residency/squeeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/planner_test.h"

namespace tessera::sched {
namespace {

using PlannedSqueezeTest = PlannerTest;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::Not;

class SqueezeTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kChunk = 64ull << 20;

  SqueezeTest() {
    state_.pool.most = 100 * kChunk;
    vgpu_.processes.push_back(
        {.id = 1, .room = 80 * kChunk, .holes = 30 * kChunk, .holed = 60 * kChunk, .has_line = true});
  }
  std::uint64_t Step(std::uint64_t lacking) const {
    return SqueezeStep(state_, vgpu_, vgpu_.processes[0], lacking) / kChunk;
  }

  ResidencyState state_;
  VGpuResidence vgpu_;
};

TEST_F(SqueezeTest, AsManyChunksGoAsTheirHolesSuffice) {
  EXPECT_EQ(Squeezable(state_, vgpu_, 0), 30 * kChunk);
  EXPECT_EQ(Step(kChunk), 2u);
  EXPECT_EQ(Step(1), 1u);
  EXPECT_EQ(Step(5 * kChunk), 10u);
  EXPECT_EQ(Step(30 * kChunk), 16u) << "the others follow";
}

TEST_F(SqueezeTest, NoMoreGoThanThereIsHostMemoryFor) {
  state_.pool.used = 95 * kChunk;
  EXPECT_EQ(Step(30 * kChunk), 5u);
  vgpu_.swap = 3 * kChunk;
  EXPECT_EQ(Step(30 * kChunk), 3u);
  EXPECT_TRUE(MaySqueeze(state_, vgpu_, 0));
  vgpu_.swap = kChunk;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  vgpu_.swap.reset();
  state_.pool.used = 99 * kChunk;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  EXPECT_EQ(Squeezable(state_, vgpu_, 0), 0u);
}

TEST_F(SqueezeTest, WhereNothingCanBeMovedHolesStay) {
  state_.mover_hopeless = true;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 0));
  state_.mover_hopeless = false;
  state_.pool.full_until = 5;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 4));
  EXPECT_TRUE(MaySqueeze(state_, vgpu_, 5));
  state_.pool.most = 0;
  EXPECT_FALSE(MaySqueeze(state_, vgpu_, 5));
  state_.pool.most = 100 * kChunk;
  vgpu_.processes[0].has_line = false;
  EXPECT_EQ(Squeezable(state_, vgpu_, 5), 0u);
}

// ---- as the planner does it ----

// Twelve of sixteen chunks have three quarters of holes.
TEST_F(PlannedSqueezeTest, HolesOfAVGpuBecomeRoomForIt) {
  ProcessResidence& process = AddBusy(1, 16, 16);
  process.holed = 12 * kChunk;
  process.holes = 9 * kChunk;
  EXPECT_EQ(Allocate(1, 9).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Process(1).wanted, 0u);
  EXPECT_EQ(Process(1).holes, 0u);
  EXPECT_EQ(Process(1).squeezed, 0u) << "what was in use is back";
  EXPECT_EQ(Out(1), 0u);
  EXPECT_EQ(Process(1).room, 16 * kChunk);
  EXPECT_FALSE(Process(1).stopped);
}

TEST_F(PlannedSqueezeTest, NoMoreHolesGoThanAreNeeded) {
  ProcessResidence& process = AddBusy(1, 16, 16);
  world_.VGpu(1).swap = 2 * kChunk;
  process.holed = 12 * kChunk;
  process.holes = 9 * kChunk;
  EXPECT_EQ(Allocate(1, 3).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Process(1).wanted, 0u);
  EXPECT_GE(Process(1).holes, 5 * kChunk);
}

// There is place for what is in use of its chunk, and for no whole chunk.
TEST_F(PlannedSqueezeTest, WhatMustComeBackComesWithoutItsHolesWhereThatFits) {
  constexpr std::uint64_t kPart = kChunk / 2;
  ProcessResidence& process = AddBusy(1, 40);
  process.room -= kPart;
  process.swapped = 5 * kPart;
  process.holes_out = 5 * (kChunk - kPart);
  process.recalled = kPart;
  process.allocated = process.room + process.swapped;
  process.stopped = process.still = process.unsafe = true;
  ResidencyPlanner planner;
  const ResidencyPlan& plan = planner.Plan(world_.state, world_.now);
  EXPECT_THAT(plan.actions, Contains(AllOf(Is(Kind::kMoveIn, 1), Field(&ResidencyAction::bytes, kPart),
                                           Field(&ResidencyAction::holes, 0))));
  EXPECT_THAT(plan.actions, Not(Contains(Is(Kind::kRun, 1))));
}

TEST_F(PlannedSqueezeTest, AProgramWithoutALimitSqueezesItselfOnAFullGpu) {
  ProcessResidence& process = AddBusy(1, 38);
  process.holed = 30 * kChunk;
  process.holes = 15 * kChunk;
  EXPECT_EQ(Allocate(1, 14).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Process(1).wanted, 0u);
  EXPECT_EQ(Out(1), 0u) << "all that is in use stays on the GPU";
}

TEST_F(PlannedSqueezeTest, WhatHolesCannotGiveGoesOut) {
  ProcessResidence& process = AddBusy(1, 38);
  process.holed = 4 * kChunk;
  process.holes = 2 * kChunk;
  EXPECT_EQ(Allocate(1, 10).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Process(1).wanted, 0u);
  EXPECT_EQ(Process(1).holes, 0u);
  EXPECT_EQ(Out(1), 6u);
}

TEST_F(PlannedSqueezeTest, WithoutHostMemoryHolesStay) {
  ProcessResidence& process = AddBusy(1, 16, 16);
  process.holed = 12 * kChunk;
  process.holes = 9 * kChunk;
  world_.VGpu(1).swap = 0;
  EXPECT_EQ(Allocate(1, 9).reason, Reason::kSwapBound);
  world_.VGpu(1).swap = 2 * kChunk;
  world_.state.pool.most = kChunk;
  EXPECT_EQ(Allocate(1, 9).reason, Reason::kSwapBound);
}

}  // namespace
}  // namespace tessera::sched
