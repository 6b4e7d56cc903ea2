#include "server/time/token_server.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using State = GateRecord::State;
using Standing = Standing;

struct Member {
  SharedPage page = std::move(*SharedPage::Create(0));
  GateRecord gate{page};
  wire::GateOrder Order() const { return page->gate.load(); }
  bool Open() const { return Order() != wire::GateOrder::kClosed; }
};

// vGPU 1 has the processes a_ and b_, vGPU 2 has c_.
class TokenServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tokens_.Set(1, {}, 0));
    ASSERT_TRUE(tokens_.Set(2, {}, 0));
    tokens_.Join(1, a_.gate, 0);
    tokens_.Join(1, b_.gate, 0);
    tokens_.Join(2, c_.gate, 0);
  }
  void Wants(Member& member) { tokens_.Wants(member.gate, now_); }
  void Idle(Member& member) { tokens_.Idle(member.gate, now_, now_); }
  void Released(Member& member) { tokens_.Released(member.gate, now_, now_, member.page.Epoch()); }
  // Lets time pass until the next deadline.
  void PassDeadline() {
    ASSERT_NE(tokens_.NextDeadline().at, kNever);
    now_ = tokens_.NextDeadline().at;
    tokens_.Advance(now_);
  }

  TokenServer tokens_{sched::Config{}, 2 * kMillisecond};
  Member a_, b_, c_;
  Nanos now_ = kSecond;
};

TEST_F(TokenServerTest, WantsOpensTheGateOfAFreeGpu) {
  EXPECT_FALSE(a_.Open());
  Wants(a_);
  EXPECT_EQ(a_.Order(), wire::GateOrder::kOpen);
  EXPECT_EQ(a_.page.Epoch(), 1u);
  EXPECT_EQ(a_.page->epoch.load(), 1u);
  EXPECT_EQ(a_.page->doorbell.load(), 1u);
  EXPECT_GT(a_.page->idle_grace_ns.load(), 0);
  EXPECT_EQ(tokens_.StateOf(1).standing, Standing::kRunning);
  EXPECT_EQ(tokens_.NextDeadline().at, kNever);  // nothing to do while nobody else wants
}

TEST_F(TokenServerTest, AShortQueueIsBoundedThoughNobodyWaits) {
  Wants(a_);
  ASSERT_EQ(a_.Order(), wire::GateOrder::kOpen);
  ASSERT_TRUE(tokens_.Set(1, {.short_queue = true}, now_));
  EXPECT_EQ(a_.Order(), wire::GateOrder::kBounded);
  EXPECT_EQ(a_.page->window_ns.load(), 2 * kMillisecond);
  Wants(b_);
  EXPECT_TRUE(a_.Open() && b_.Open()) << "they still run at once";
  ASSERT_TRUE(tokens_.Set(1, {}, now_));
  EXPECT_EQ(a_.Order(), wire::GateOrder::kOpen);
  EXPECT_EQ(b_.Order(), wire::GateOrder::kOpen);
}

TEST_F(TokenServerTest, WhoIsMeasuredSaysSoonThatItIsIdle) {
  Wants(a_);
  const Nanos open = a_.page->idle_grace_ns.load();
  ASSERT_TRUE(tokens_.Set(1, {.measured = true}, now_));
  EXPECT_EQ(a_.Order(), wire::GateOrder::kOpen);
  const Nanos measured = a_.page->idle_grace_ns.load();
  EXPECT_LT(measured, open);
  Wants(c_);
  EXPECT_EQ(a_.Order(), wire::GateOrder::kBounded);
  EXPECT_EQ(a_.page->idle_grace_ns.load(), measured) << "so a pause ends its burst or not whoever waits";
}

// Seen on a real GPU: as long as one was frozen, whose gate had closed before, all of its vGPU waited.
TEST_F(TokenServerTest, WhoIsFrozenBeforeItHasDrainedKeepsNobodyWaiting) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  ASSERT_EQ(a_.gate.state, State::kDraining);
  tokens_.Hold(a_.gate, true, now_);
  Wants(b_);
  for (int i = 0; i < 100 && !b_.Open(); ++i) {
    if (c_.gate.state == State::kDraining) Released(c_);
    if (c_.gate.state == State::kParked) Wants(c_);
    if (!b_.Open()) PassDeadline();
  }
  EXPECT_TRUE(b_.Open());
  tokens_.Hold(a_.gate, false, now_);
  Released(a_);
  EXPECT_EQ(a_.gate.state, State::kParked);
}

TEST_F(TokenServerTest, WhoDidNotAskStaysClosed) {
  Wants(a_);
  EXPECT_FALSE(b_.Open());
  EXPECT_EQ(b_.page.Epoch(), 0u);
  Wants(b_);
  EXPECT_TRUE(b_.Open());
}

TEST_F(TokenServerTest, EveryWantsOfTheHolderGetsAFreshOrder) {
  Wants(a_);
  const auto epoch = a_.page.Epoch();
  Wants(a_);
  EXPECT_GT(a_.page.Epoch(), epoch);
  EXPECT_TRUE(a_.Open());
}

TEST_F(TokenServerTest, CompetitionBoundsTheHolderAndThenRevokes) {
  Wants(a_);
  Wants(c_);
  EXPECT_EQ(tokens_.StateOf(2).standing, Standing::kWaiting);
  EXPECT_FALSE(c_.Open());
  if (a_.Open()) {
    EXPECT_EQ(a_.Order(), wire::GateOrder::kBounded);
    EXPECT_EQ(a_.page->window_ns.load(), 2 * kMillisecond);
    PassDeadline();
  }
  EXPECT_FALSE(a_.Open());
  EXPECT_EQ(a_.gate.state, State::kDraining);
  EXPECT_FALSE(c_.Open());
  Released(a_);
  EXPECT_TRUE(c_.Open());
  EXPECT_EQ(tokens_.StateOf(2).standing, Standing::kRunning);
}

TEST_F(TokenServerTest, TheStandingOfAVGpuIsFreeWhenAllItsProcessesAreDone) {
  Wants(a_);
  Wants(b_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  Released(a_);
  EXPECT_FALSE(c_.Open());
  Released(b_);
  EXPECT_TRUE(c_.Open());
}

TEST_F(TokenServerTest, IdleGivesTheTokenBackAndClosesThePage) {
  Wants(a_);
  Wants(b_);
  Wants(c_);
  Idle(a_);
  EXPECT_FALSE(a_.Open());
  EXPECT_FALSE(c_.Open());
  const auto rung = b_.page->doorbell.load();
  Idle(b_);
  EXPECT_EQ(b_.page->doorbell.load(), rung);  // nobody waits there
  EXPECT_TRUE(c_.Open());
}

TEST_F(TokenServerTest, IdleThatCrossesARevocationCountsAsRelease) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  Idle(a_);  // sent before the order came
  EXPECT_TRUE(c_.Open());
  EXPECT_EQ(a_.gate.state, State::kParked);
}

TEST_F(TokenServerTest, AProcessThatNeverSawItsTokenMayWantAgain) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  Wants(a_);  // instead of Released: it slept through grant and revocation
  EXPECT_TRUE(c_.Open());
  EXPECT_EQ(a_.gate.state, State::kWanting);
  while (c_.Open()) PassDeadline();
  Released(c_);
  EXPECT_TRUE(a_.Open());
}

TEST_F(TokenServerTest, ReleasedOfAnotherOrderIsIgnored) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  tokens_.Released(a_.gate, now_, now_, a_.page.Epoch() - 1);
  EXPECT_EQ(a_.gate.state, State::kDraining);
  EXPECT_FALSE(c_.Open());
  tokens_.Released(c_.gate, now_, now_, c_.page.Epoch());
  EXPECT_FALSE(c_.Open());
}

TEST_F(TokenServerTest, AHolderThatDoesNotDrainBlocksNobodyForLong) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  EXPECT_FALSE(c_.Open());
  PassDeadline();
  EXPECT_TRUE(c_.Open());
  Released(a_);  // late
  EXPECT_TRUE(c_.Open());
  EXPECT_EQ(a_.gate.state, State::kParked);
}

TEST_F(TokenServerTest, ASiblingMayHaveTheTokenWhileAnotherStillDrains) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  PassDeadline();  // a_ drains on
  Wants(b_);
  Idle(c_);
  EXPECT_TRUE(b_.Open());
  EXPECT_FALSE(a_.Open());
  Released(a_);
  EXPECT_EQ(a_.gate.state, State::kParked);
  EXPECT_TRUE(b_.Open());
}

TEST_F(TokenServerTest, DeathOfTheHolderFreesTheTokenAtOnce) {
  Wants(a_);
  Wants(c_);
  tokens_.Leave(a_.gate, now_);
  EXPECT_TRUE(c_.Open());
}

TEST_F(TokenServerTest, DeathWhileDrainingFreesTheTokenAtOnce) {
  Wants(a_);
  Wants(c_);
  while (a_.Open()) PassDeadline();
  tokens_.Leave(a_.gate, now_);
  EXPECT_TRUE(c_.Open());
}

TEST_F(TokenServerTest, DeathOfAWaitingProcessLosesNoTurn) {
  Wants(a_);
  Wants(c_);
  tokens_.Leave(c_.gate, now_);
  while (a_.Open()) PassDeadline();
  Released(a_);
  Wants(a_);
  EXPECT_TRUE(a_.Open());  // the dead one's turn is passed on
}

TEST_F(TokenServerTest, ARemovedVGpuIsClosedForGood) {
  Wants(a_);
  Wants(c_);
  tokens_.Remove(1, now_);
  EXPECT_FALSE(a_.Open());
  EXPECT_TRUE(c_.Open());
  Wants(a_);
  Idle(a_);
  Released(a_);
  EXPECT_FALSE(a_.Open());
  tokens_.Leave(a_.gate, now_);
}

TEST_F(TokenServerTest, TimesAreClippedToWhatCanBeTrue) {
  Wants(a_);
  now_ += 10 * kMillisecond;
  tokens_.Idle(a_.gate, now_, INT64_MAX);
  EXPECT_EQ(tokens_.UsageOf(1, now_).busy, 10 * kMillisecond);
  Wants(a_);
  now_ += 10 * kMillisecond;
  tokens_.Idle(a_.gate, now_, INT64_MIN);
  EXPECT_EQ(tokens_.UsageOf(1, now_).busy, 10 * kMillisecond);
}

TEST_F(TokenServerTest, TheLastWorkOfAllProcessesIsBilled) {
  Wants(a_);
  Wants(b_);
  now_ += 10 * kMillisecond;
  tokens_.Idle(b_.gate, now_, now_ - kMillisecond);
  now_ += 10 * kMillisecond;
  tokens_.Idle(a_.gate, now_, now_ - 15 * kMillisecond);
  EXPECT_EQ(tokens_.UsageOf(1, now_).busy, 9 * kMillisecond);
}

TEST_F(TokenServerTest, ProcessesTakeTurnsWithinABoundedToken) {
  ASSERT_TRUE(tokens_.Set(1, {.limit_pct = 50}, now_));
  Wants(a_);
  ASSERT_EQ(a_.Order(), wire::GateOrder::kBounded);
  Wants(b_);
  EXPECT_FALSE(b_.Open());
  EXPECT_EQ(tokens_.StateOf(1).standing, Standing::kRunning);
  Idle(a_);
  EXPECT_TRUE(b_.Open());  // gets the rest of the token
  EXPECT_FALSE(a_.Open());
  Wants(a_);
  while (b_.Open()) PassDeadline();
  Released(b_);
  Wants(b_);
  while (!a_.Open()) PassDeadline();
  EXPECT_FALSE(b_.Open());  // the next token goes to the next
}

TEST_F(TokenServerTest, DeathPassesTheRestOfTheTokenOn) {
  ASSERT_TRUE(tokens_.Set(1, {.limit_pct = 50}, now_));
  Wants(a_);
  Wants(b_);
  tokens_.Leave(a_.gate, now_);
  EXPECT_TRUE(b_.Open());
  tokens_.Leave(b_.gate, now_);
  EXPECT_EQ(tokens_.StateOf(1).standing, Standing::kIdle);
  EXPECT_EQ(tokens_.StateOf(2).standing, Standing::kIdle);
}

TEST_F(TokenServerTest, FrozenGatesKeepTheirLastOrder) {
  Wants(a_);
  Wants(c_);
  tokens_.Seal();
  tokens_.Leave(a_.gate, now_);
  EXPECT_FALSE(c_.Open());
}

// It came from another daemon, or from channels that were steered.
TEST_F(TokenServerTest, WhoWorksAtItsClosedGateDrains) {
  Wants(c_);
  tokens_.Wants(a_.gate, now_, false);
  EXPECT_EQ(a_.gate.state, State::kDraining);
  EXPECT_FALSE(a_.Open());
  Released(a_);
  EXPECT_EQ(a_.gate.state, State::kParked);
  Wants(a_);
  EXPECT_EQ(a_.gate.state, State::kWanting);
  while (!a_.Open()) {
    PassDeadline();
    if (c_.gate.state == State::kDraining) Released(c_);
  }
}

TEST_F(TokenServerTest, WhoWorksAtItsClosedGateAndHasTheTokenGoesOn) {
  tokens_.Wants(a_.gate, now_, false);
  EXPECT_TRUE(a_.Open());
  EXPECT_EQ(a_.gate.state, State::kRunning);
}

// It met the free gate that was just closed, and says so late.
TEST_F(TokenServerTest, WhoSaysTwiceThatItWorksDrainsStill) {
  Wants(c_);
  tokens_.Wants(a_.gate, now_, false);
  tokens_.Wants(a_.gate, now_, false);
  EXPECT_EQ(a_.gate.state, State::kDraining);
  Released(a_);
  EXPECT_EQ(a_.gate.state, State::kParked);
}

TEST_F(TokenServerTest, ALimitClosesTheGateWithoutCompetition) {
  ASSERT_TRUE(tokens_.Set(1, {.limit_pct = 10}, now_));
  Wants(a_);
  EXPECT_EQ(a_.Order(), wire::GateOrder::kBounded);
  PassDeadline();
  EXPECT_FALSE(a_.Open());
}

}  // namespace
}  // namespace tessera::server
