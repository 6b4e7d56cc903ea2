#include "shim/session/daemon_watch.h"

#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

// Does as the test of the moment says; the watch knows it for good.
class Follower : public DaemonFollower {
 public:
  void Retreat() override { calls += "retreat "; }
  bool Reattach() override {
    calls += attaches ? "attach " : "fail ";
    asked.push_back(this);
    safe = true;
    return attaches;
  }
  bool Safe() const override { return safe; }
  void Reattached() override { calls += "attached "; }
  void GoOnAlone(bool block) override { calls += block ? "block " : "go on "; }

  std::string calls;
  bool attaches = true;
  bool safe = true;
  static inline std::vector<const Follower*> asked;  // to attach, in this order
};

class DaemonWatchTest : public ShimFixture {
 protected:
  DaemonWatchTest() : ShimFixture(false) {
    static const bool added = (DaemonWatch::Instance().Add(TheFollower()), true);
    EXPECT_TRUE(added);
    follower.calls.clear();
    follower.attaches = true;
  }
  static Follower& TheFollower() {
    static auto* follower = new Follower;
    return *follower;
  }
  // A daemon welcomes the process with this time of grace, and ends.
  void LoseDaemon(Nanos grace, bool block = false) {
    EndDaemon();
    StartDaemon().Set(
        [=](FakeDaemon::Answers& answers) { answers.welcome = {.grace_ns = grace, .block_on_loss = block}; });
    EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
    EndDaemon();
    EXPECT_TRUE(Session::Instance().Lost());
    follower.calls.clear();
  }
  void Recover() {
    StartDaemon();
    EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  }

  Follower& follower = TheFollower();
  DaemonWatch& watch = DaemonWatch::Instance();
};

TEST_F(DaemonWatchTest, WhileTheDaemonIsThereNothingIsDone) {
  watch.Mind(kNever / 2);
  EXPECT_TRUE(watch.Reconnect());
  EXPECT_EQ(follower.calls, "");
}

TEST_F(DaemonWatchTest, AnotherDaemonIsAttachedTo) {
  LoseDaemon(kNever);
  Recover();
  EXPECT_EQ(follower.calls, "retreat attach attached ");
  EXPECT_FALSE(Session::Instance().Lost());
}

TEST_F(DaemonWatchTest, WhatMustNotBeUsedIsToldFirst) {
  static auto* other = new Follower;
  watch.Add(*other);
  for (const bool first : {true, false}) {
    LoseDaemon(kNever);
    follower.safe = !first;
    other->safe = first;  // until it attaches
    Follower::asked.clear();
    Recover();
    ASSERT_EQ(Follower::asked.size(), 2u);
    EXPECT_EQ(Follower::asked[0], first ? &follower : other);
  }
  follower.safe = other->safe = true;
}

TEST_F(DaemonWatchTest, ADaemonThatDoesNotTakeThemIsNone) {
  LoseDaemon(kNever);
  follower.attaches = false;
  StartDaemon();
  EXPECT_FALSE(watch.Reconnect());
  EXPECT_EQ(follower.calls, "retreat fail ");
  EXPECT_TRUE(Session::Instance().Lost());
  follower.attaches = true;
  EXPECT_TRUE(watch.Reconnect());
}

TEST_F(DaemonWatchTest, NoMoreThanOneTryInAWhile) {
  LoseDaemon(kNever);
  const Nanos now = kNever / 4;
  watch.Mind(now);
  EXPECT_EQ(follower.calls, "retreat ");
  watch.Mind(now + kReconnectEvery - 1);
  EXPECT_EQ(follower.calls, "retreat ");
  watch.Mind(now + kReconnectEvery);
  EXPECT_EQ(follower.calls, "retreat retreat ");
  Recover();
}

TEST_F(DaemonWatchTest, AfterTheGraceEachGoesOnAlone) {
  LoseDaemon(5 * kSecond);
  const Nanos lost = Session::Instance().LostSince();
  ASSERT_NE(lost, 0);
  watch.Mind(lost + 5 * kSecond - 1);
  EXPECT_EQ(follower.calls.find("go on"), std::string::npos);
  watch.Mind(lost + 5 * kSecond);
  EXPECT_NE(follower.calls.find("go on"), std::string::npos);
  Recover();
}

// One that had found the daemon gone may be the first to go on after another one has reconnected. On one processor that
// happens within a few of these.
TEST_F(DaemonWatchTest, WhoeverFindsAnotherDaemonThereDoesNotGoOnAlone) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  constexpr Nanos kGrace = 10 * kSecond;  // longer than any daemon stays away here, and shorter than this machine runs
  ASSERT_GT(MonotonicNow(), kGrace);
  LoseDaemon(kGrace);
  std::atomic<bool> ended{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!ended) watch.Mind(MonotonicNow());
    });
  }
  for (int i = 0; i < 100; ++i) {
    StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.welcome = {.grace_ns = kGrace}; });
    while (!watch.Reconnect()) continue;
    EndDaemon();
  }
  ended = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(follower.calls.find("go on"), std::string::npos);
  Recover();
}

TEST_F(DaemonWatchTest, OrWaitsIfTheDaemonSaidSo) {
  LoseDaemon(0, true);
  watch.Mind(Session::Instance().LostSince());
  EXPECT_NE(follower.calls.find("block"), std::string::npos);
  Recover();
}

}  // namespace
}  // namespace tessera::shim
