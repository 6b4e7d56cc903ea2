#include <gtest/gtest.h>

#include <unordered_set>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;
using GuestTest = SteeredGpuTest;

// Programs without a shim: nobody hears from them, and no gate holds them.

TEST_F(GuestTest, AGuestThatTheDeviceDoesNotSeeWorkingLetsLowerOnesRun) {
  Member& low = Running(low_);
  Member& guest = Guest(high_);
  EXPECT_TRUE(Frozen(low));
  EXPECT_TRUE(gpu_.Measurement().NeedsWatching());
  Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_TRUE(Frozen(low)) << "samples have gaps";
  guest.process.work.seen_at -= 3 * kSecond;
  Reconcile({});
  EXPECT_TRUE(Frozen(low)) << "where the device does not tell it counts as active";
  EXPECT_FALSE(gpu_.Measurement().NeedsWatching());
  Reconcile({.worked = std::unordered_set<pid_t>()});
  guest.process.work.seen_at -= 3 * kSecond;
  Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_FALSE(Frozen(low));
  Reconcile({.worked = std::unordered_set{guest.process.pid}});
  EXPECT_TRUE(Frozen(low));
}

TEST_F(GuestTest, AnIdleGuestIsFrozenAllTheSame) {
  Member& guest = Guest(low_);
  EXPECT_FALSE(gpu_.Measurement().NeedsWatching());  // it keeps nobody from running
  Reconcile({.worked = std::unordered_set<pid_t>()});
  guest.process.work.seen_at -= 3 * kSecond;
  Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning) << "so nobody looks often, and its limit must hold at any time";
  Rests(guest);
  ASSERT_EQ(guest.process.gate.state, State::kParked);
  Member& high = Running(high_);
  EXPECT_TRUE(Frozen(guest)) << "no gate would stop its next work";
  // As long as it is frozen it cannot be seen to work: it may have some.
  Member& other = Guest(high_);
  ASSERT_TRUE(gpu_.Measurement().NeedsWatching());
  Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning);
  guest.process.work.seen_at -= 3 * kSecond;
  Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning);
  Rests(high);
  Rests(other);
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(GuestTest, WhoGetsMemoryPastTheKernelGateIsFrozenUntilItMayHaveIt) {
  Member& guest = Guest(low_);
  guest.process.who.guarded = true;
  const pid_t pid = guest.process.pid;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute, {}, Now()));
  ASSERT_TRUE(gpu_.Requests().Count(guest.process, 2 * kGiB - 50 * kMiB, Now()));  // nearly all that it may have
  const auto measure = [&](std::uint64_t bytes) { Measure({{pid, bytes}}); };
  measure(2 * kGiB - kMiB);  // more than was counted, but no more than it may have
  measure(2 * kGiB - kMiB);
  EXPECT_FALSE(Frozen(guest));
  measure(3 * kGiB);
  EXPECT_FALSE(Frozen(guest)) << "it may have freed that meanwhile";
  measure(3 * kGiB);
  EXPECT_TRUE(Frozen(guest));
  EXPECT_TRUE(Frozen(guest, 20));
  Freeze(guest.process, true);
  Freeze(guest.process, false);
  EXPECT_TRUE(Frozen(guest)) << "an operator's thaw does not undo it";
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = kGiB}, low_.spec.compute, {}, Now()));
  EXPECT_TRUE(Frozen(guest));
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 4 * kGiB}, low_.spec.compute, {}, Now()));
  EXPECT_FALSE(Frozen(guest));
  EXPECT_FALSE(Frozen(guest, 20));
}

TEST_F(GuestTest, WhoIsNotListedAnyMoreHasNothing) {
  Member& guest = Guest(low_);
  guest.process.who.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute, {}, Now()));
  ASSERT_TRUE(gpu_.Requests().Count(guest.process, kGiB, Now()));
  Measure({{guest.process.pid, 3 * kGiB}});
  Measure({});
  EXPECT_FALSE(Frozen(guest));
  Measure({{guest.process.pid, 3 * kGiB}});
  Measure({{guest.process.pid, 3 * kGiB}});
  ASSERT_TRUE(Frozen(guest));
  Measure({});
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(GuestTest, ALimitThatIsLoweredBelowWhatTheGateGrantedIsNoOffence) {
  Member& guest = Guest(low_);
  guest.process.who.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 4 * kGiB}, low_.spec.compute, {}, Now()));
  ASSERT_TRUE(gpu_.Requests().Count(guest.process, 3 * kGiB, Now()));
  const auto measure = [&] { Measure({{guest.process.pid, 3 * kGiB + 5 * kContext}}); };
  measure();
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = kGiB}, low_.spec.compute, {}, Now()));
  measure();
  measure();
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(GuestTest, WhatADriverTakesForItselfIsNoOffence) {
  Member& guest = Guest(low_);
  guest.process.who.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute, {}, Now()));
  ASSERT_TRUE(gpu_.Requests().Count(guest.process, 2 * kGiB, Now()));
  for (int i = 0; i < 3; ++i) Measure({{guest.process.pid, 2 * kGiB + kContext}});
  EXPECT_FALSE(Frozen(guest));
}

}  // namespace
}  // namespace tessera::server
