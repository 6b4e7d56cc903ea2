#include "sched/residency/pool_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "sched/testing/any_number.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr std::uint64_t kChunk = 64ull << 20;

// A GPU of 80 GiB and a machine with plenty of memory. Programs have what the test says, on the GPU.
class PoolPolicyTest : public testing::Test {
 protected:
  PoolPolicyTest() {
    state_.capacity = 80 * kGiB;
    state_.pool.most = 64 * kGiB;
    state_.pool.prepare.reset();
    state_.pool.machine = 200 * kGiB;
  }

  VGpuResidence& Add(std::uint64_t bytes) {
    const auto id = state_.vgpus.size() + 1;
    VGpuResidence& vgpu = state_.vgpus.emplace_back(VGpuResidence{.id = static_cast<VgpuId>(id)});
    vgpu.processes.push_back({.id = id, .room = bytes, .allocated = bytes});
    return vgpu;
  }
  const PoolGoal& Decide() { return policy_.Decide(state_, now_); }
  const PoolGoal& After(Nanos time) {
    now_ += time;
    return Decide();
  }
  // As if the mover did what it is told, and decides again when that is due.
  void Settle() {
    for (int i = 0; i < 5; ++i) {
      Decide();
      if (policy_.NextLook() < kNever) now_ = policy_.NextLook();
    }
  }

  ResidencyState state_;
  PoolPolicy policy_;
  Nanos now_ = 100 * kSecond;
};

TEST_F(PoolPolicyTest, PreparesWhatProgramsCouldHaveOut) {
  Add(32 * kGiB).processes[0].pinned = kGiB;
  Add(4 * kGiB).swap = 3 * kGiB;
  EXPECT_EQ(Decide(), PoolGoal{});
  EXPECT_EQ(policy_.NextLook(), now_ + PoolPolicy::kBeginsAfter);
  EXPECT_EQ(After(PoolPolicy::kBeginsAfter), (PoolGoal{.prepared = 34 * kGiB, .prepares = true}));
  EXPECT_EQ(policy_.NextLook(), kNever);
}

TEST_F(PoolPolicyTest, CountsWhatIsOutOnceAndNotWhatIsPinned) {
  ProcessResidence& process = Add(0).processes[0];
  process.swapped = 5 * kGiB;
  process.pinned = process.room = 2 * kGiB;
  EXPECT_EQ(PoolWorthwhile(state_), 5 * kGiB);
  process.pins = true;
  process.wanted = kGiB;
  EXPECT_EQ(PoolWorthwhile(state_), 5 * kGiB);
  process.pins = false;
  EXPECT_EQ(PoolWorthwhile(state_), 6 * kGiB);
}

// Of 100 chunks, each with one unit in use.
TEST_F(PoolPolicyTest, WhatIsInAFileOfItsOwnNeedsNoPlace) {
  ProcessResidence& process = Add(0).processes[0];
  process.away = process.parked = true;
  process.swapped = process.allocated = 4 * kGiB;
  EXPECT_EQ(Decide().needed, 4 * kGiB);
  process.in_own_file = true;
  EXPECT_EQ(Decide().needed, 0u);
  EXPECT_EQ(After(2 * PoolPolicy::kBeginsAfter).prepares, false);
}

TEST_F(PoolPolicyTest, WhatLiesThinNeedsWholeSlots) {
  constexpr std::uint64_t kUnit = kChunk / 32;
  VGpuResidence& vgpu = Add(100 * kUnit);
  ProcessResidence& process = vgpu.processes[0];
  process.blank = 100 * (kChunk - kUnit);
  EXPECT_EQ(PoolWorthwhile(state_), 100 * kChunk);
  EXPECT_EQ(PoolNeeded(state_), 0u);
  process.moving = Moving::kOut;
  process.ordered = 5 * kUnit;
  EXPECT_EQ(PoolNeeded(state_), 5 * kChunk);
  process.moving = Moving::kNothing;
  vgpu.limit = 90 * kUnit;
  EXPECT_EQ(PoolNeeded(state_), 10 * kChunk);
  vgpu.swap = kUnit;
  EXPECT_EQ(PoolWorthwhile(state_), kChunk);
}

TEST_F(PoolPolicyTest, WhatIsOnItsWayNeedsItsPlaceOnce) {
  ProcessResidence& process = Add(kGiB).processes[0];
  process.moving = Moving::kOut;
  process.ordered = 5 * kChunk;
  EXPECT_EQ(PoolNeeded(state_), 5 * kChunk);
  process.swapped = process.done = 3 * kChunk;
  EXPECT_EQ(PoolNeeded(state_), 5 * kChunk);
  process.push = kChunk / 2;
  EXPECT_EQ(PoolNeeded(state_), 6 * kChunk);
}

TEST_F(PoolPolicyTest, NeverPreparesMoreThanThePoolMayHave) {
  Add(70 * kGiB);
  Decide();
  EXPECT_EQ(After(PoolPolicy::kBeginsAfter).prepared, 64 * kGiB);
}

TEST_F(PoolPolicyTest, AFixedSizeIsPreparedWhateverProgramsHave) {
  state_.pool.prepare = 10 * kGiB;
  Decide();
  EXPECT_EQ(After(PoolPolicy::kBeginsAfter), (PoolGoal{.prepared = 10 * kGiB, .prepares = true}));
  Add(30 * kGiB);
  EXPECT_EQ(Decide().prepared, 10 * kGiB);
}

TEST_F(PoolPolicyTest, WithoutPreparationThereIsWhatIsNeeded) {
  state_.pool.prepare = 0;
  Add(60 * kGiB);
  Add(60 * kGiB);
  const std::uint64_t needed = PoolNeeded(state_);
  EXPECT_GT(needed, 0u);
  EXPECT_EQ(Decide(), (PoolGoal{.needed = needed, .prepared = needed}));
  EXPECT_EQ(After(10 * kSecond), (PoolGoal{.needed = needed, .prepared = needed}));
}

TEST_F(PoolPolicyTest, KeepsWhatIsNotWorthwhileAnyMoreForAWhile) {
  Add(32 * kGiB);
  Settle();
  state_.vgpus.clear();
  EXPECT_EQ(Decide().prepared, 32 * kGiB);
  EXPECT_FALSE(policy_.Goal().prepares);
  EXPECT_EQ(policy_.NextLook(), now_ + PoolPolicy::kKeepsFor);
  EXPECT_EQ(After(PoolPolicy::kKeepsFor - 1).prepared, 32 * kGiB);
  EXPECT_EQ(After(1), PoolGoal{});
}

TEST_F(PoolPolicyTest, AProgramThatComesInTimeFindsWhatTheLastOneLeft) {
  Add(32 * kGiB);
  Settle();
  state_.vgpus.clear();
  Decide();
  After(PoolPolicy::kKeepsFor / 2);
  Add(32 * kGiB);
  EXPECT_EQ(Decide().prepared, 32 * kGiB);
  EXPECT_EQ(After(2 * PoolPolicy::kKeepsFor).prepared, 32 * kGiB);
}

TEST_F(PoolPolicyTest, KeepsWhatAnEarlierDaemonLeft) {
  state_.pool.size = state_.pool.prepared = 20 * kGiB;
  EXPECT_EQ(Decide().prepared, 20 * kGiB);
  state_.pool.machine.reset();
  EXPECT_EQ(After(kSecond).prepared, 20 * kGiB);
}

TEST_F(PoolPolicyTest, PreparesNothingBeforeItKnowsTheMachine) {
  state_.pool.machine.reset();
  Add(32 * kGiB);
  Settle();
  EXPECT_EQ(policy_.Goal(), (PoolGoal{.prepares = true}));
  state_.pool.machine = 200 * kGiB;
  EXPECT_EQ(Decide().prepared, 32 * kGiB);
}

TEST_F(PoolPolicyTest, LeavesAMarginOfTheMachine) {
  state_.pool.machine = 32 * kGiB;
  Add(40 * kGiB);
  Settle();
  EXPECT_EQ(policy_.Goal(), (PoolGoal{.prepared = 30 * kGiB, .prepares = true, .is_short = true}));
  // Within the band nothing changes.
  state_.pool.machine = 31 * kGiB;
  EXPECT_EQ(After(kSecond).prepared, 30 * kGiB);
  // Below, the margin is made anew.
  state_.pool.machine = 30 * kGiB;
  EXPECT_EQ(After(kSecond).prepared, 28 * kGiB + 2 * kChunk);  // 30 GiB less a sixteenth of it
  // What is free again is not taken at once.
  state_.pool.machine = 200 * kGiB;
  EXPECT_EQ(After(kSecond).prepared, 28 * kGiB + 2 * kChunk);
  EXPECT_TRUE(policy_.Goal().is_short);
  EXPECT_EQ(After(policy_.NextLook() - now_), (PoolGoal{.prepared = 40 * kGiB, .prepares = true}));
}

TEST_F(PoolPolicyTest, GivesAllThatIsNotNeededBackUnderPressure) {
  Add(32 * kGiB);
  Settle();
  state_.vgpus[0].processes[0].room -= 2 * kGiB;
  state_.vgpus[0].processes[0].swapped += 2 * kGiB;
  state_.pool.pressure = PoolPolicy::kMostPressure;
  EXPECT_EQ(Decide(), (PoolGoal{.needed = 2 * kGiB, .prepared = 2 * kGiB, .prepares = true, .is_short = true}));
  state_.pool.pressure = 0;
  EXPECT_EQ(After(PoolPolicy::kRestsFor - 1).prepared, 2 * kGiB);
  EXPECT_EQ(After(1).prepared, 32 * kGiB);
}

TEST_F(PoolPolicyTest, WhatIsNeededIsMadeUnderPressureToo) {
  Add(60 * kGiB);
  Add(60 * kGiB);
  state_.pool.pressure = 5000;
  state_.pool.machine = 0;
  EXPECT_EQ(Decide().needed, PoolNeeded(state_));
  EXPECT_GE(Decide().needed, 40 * kGiB);
  EXPECT_EQ(Decide().prepared, Decide().needed);
}

// ---- any history ----

bool OneIn(int n) { return Number(1, n) == 1; }
std::uint64_t Chunks(std::uint64_t most) { return Number<std::uint64_t>(0, most) * kChunk; }

void Change(ResidencyState& state) {
  if (OneIn(2)) {
    state.vgpus.clear();
    for (VgpuId id = Number<VgpuId>(0, 3); id > 0; --id) {
      VGpuResidence vgpu{.id = id};
      if (OneIn(3)) vgpu.swap = Chunks(500);
      vgpu.processes.push_back({.id = id, .room = Chunks(1000), .swapped = OneIn(2) ? Chunks(200) : 0});
      vgpu.processes[0].wanted = OneIn(4) ? Chunks(300) : 0;
      state.vgpus.push_back(vgpu);
    }
  }
  if (OneIn(3)) state.pool.machine = OneIn(6) ? std::nullopt : std::optional(Chunks(2000));
  if (OneIn(3)) state.pool.pressure = OneIn(3) ? Number(0u, 10'000u) : 0;
}

ResidencyState AnyState() {
  ResidencyState state{.capacity = 1200 * kChunk};
  state.pool.most = Chunks(2000);
  state.pool.prepare = OneIn(3) ? std::optional(Chunks(1000)) : std::nullopt;
  Change(state);
  return state;
}

RC_GTEST_PROP(PoolPolicyProperty, EveryGoalOfAnyHistoryIsWithinItsBounds, ()) {
  PoolPolicy policy, twin;
  ResidencyState state = AnyState();
  PoolGoal before;
  Nanos now = 100 * kSecond, pressed_at = 0;
  for (int steps = Number(1, 40); steps > 0; --steps) {
    const PoolGoal goal = policy.Decide(state, now);
    RC_ASSERT(goal == twin.Decide(state, now));
    RC_ASSERT(policy.NextLook() > now);
    RC_ASSERT(goal.needed == PoolNeeded(state));
    RC_ASSERT(goal.prepared >= goal.needed);
    RC_ASSERT(goal.prepared <= state.pool.most);
    if (state.pool.pressure >= PoolPolicy::kMostPressure) {
      RC_ASSERT(goal.prepared == goal.needed);
      pressed_at = now;
    }
    if (goal.prepared > std::max(before.prepared, goal.needed)) {  // it has become more
      RC_ASSERT(now - pressed_at >= PoolPolicy::kRestsFor);
      RC_ASSERT(goal.prepared <= Less(*state.pool.machine, PoolPolicy::kLeastMargin));
      RC_ASSERT(goal.prepared <= PoolWorthwhile(state));
    }
    if (state.pool.machine && goal.prepared > goal.needed) {
      RC_ASSERT(goal.prepared <= Less(*state.pool.machine, PoolPolicy::kLeastMargin / 2));
    }
    // The mover does as it is told.
    state.pool.size = state.pool.prepared = goal.prepared;
    before = goal;
    now += OneIn(3) ? Number<Nanos>(0, 100 * kSecond) : Number<Nanos>(0, kSecond);
    Change(state);
  }
}

// Whatever was before: where nothing changes any more, all that is worthwhile is prepared, as far as the machine has it
// to spare, and nothing is decided anew after that.
RC_GTEST_PROP(PoolPolicyProperty, AStateThatStaysIsServedInTheEnd, ()) {
  PoolPolicy policy;
  ResidencyState state = AnyState();
  Nanos now = 100 * kSecond;
  for (int steps = Number(0, 10); steps > 0; --steps) {
    policy.Decide(state, now);
    now += Number<Nanos>(0, 30 * kSecond);
    Change(state);
  }
  state.pool.pressure = 0;
  state.pool.machine = OneIn(2) ? 4000 * kChunk : Chunks(2000);
  const Nanos end = now + 3 * PoolPolicy::kKeepsFor + 3 * PoolPolicy::kRestsFor;
  int looks = 0;
  for (; now <= end; now = std::max(policy.NextLook(), now + 1)) {
    policy.Decide(state, now);
    RC_ASSERT(++looks < 20);
    if (policy.NextLook() == kNever) break;
  }
  const PoolGoal& goal = policy.Goal();
  const std::uint64_t margin = std::max(PoolPolicy::kLeastMargin, *state.pool.machine / PoolPolicy::kMarginPart);
  const std::uint64_t wish = std::max(goal.needed, PoolWorthwhile(state));
  RC_ASSERT(goal.prepared <= wish);
  RC_ASSERT(goal.prepared >= std::min(wish, DownTo(kChunk, Less(*state.pool.machine, margin))));
  RC_ASSERT(goal.is_short == (goal.prepared < wish));
}

}  // namespace
}  // namespace tessera::sched
