#include "sched/balance/balancer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "base/size.h"

namespace tessera::sched {
namespace {

// vGPUs 1, 2, … on GPUs of one type. Each second they do as they are told.
class BalancerTest : public testing::Test {
 protected:
  struct Program {
    std::size_t gpu = 0;
    double runs = 0;   // part of each second
    double waits = 0;  // likewise
    Nanos pause = kSecond;
    bool moves = false;
  };

  void Pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_ += Balancer::kEvery;
      seen_.resize(programs_.size());
      for (std::size_t p = 0; p < programs_.size(); ++p) {
        Balancer::Seen& seen = seen_[p];
        const Program& program = programs_[p];
        const auto ran = static_cast<Nanos>(program.runs * static_cast<double>(Balancer::kEvery));
        const auto waited = static_cast<Nanos>(program.waits * static_cast<double>(Balancer::kEvery));
        seen.vgpu = static_cast<VgpuId>(p + 1);
        seen.gpu = program.gpu;
        seen.ran += ran;
        seen.had_work += ran + waited;
        seen.pause = program.pause;
        seen.moves = program.moves;
      }
      balancer_.See(seen_, now_);
    }
  }

  std::optional<Rehoming::Move> Next() {
    std::vector<Home> homes(gpus_, {.memory = 80 * kGiB, .place = 80 * kGiB, .resident = 80 * kGiB});
    std::vector<Dweller> dwellers;
    std::vector<VgpuId> ids;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      dwellers.push_back({.home = programs_[p].gpu, .group = p});
      ids.push_back(static_cast<VgpuId>(p + 1));
    }
    return balancer_.Next(homes, dwellers, ids, {}, now_);
  }
  void GoesTo(std::size_t program, std::size_t gpu) {
    programs_[program].moves = false;
    programs_[program].gpu = gpu;
  }

  std::size_t gpus_ = 2;
  std::vector<Program> programs_;
  std::vector<Balancer::Seen> seen_;
  Balancer balancer_;
  Nanos now_ = 100 * kSecond;
};

TEST_F(BalancerTest, OneOfTwoThatShareAGpuGoesToTheOtherOne) {
  programs_ = {{.gpu = 0, .runs = 0.5, .waits = 0.5}, {.gpu = 0, .runs = 0.5, .waits = 0.5}};
  Pass(1);
  EXPECT_FALSE(Next()) << "one sample says nothing";
  Pass(1);
  EXPECT_EQ(balancer_.WantedOf(1), 1);
  EXPECT_TRUE(balancer_.AnyOver({}));
  const auto move = Next();
  ASSERT_TRUE(move);
  EXPECT_EQ(move->to, 1u);
  EXPECT_FALSE(Next()) << "both GPUs are about to change";
  GoesTo(move->dweller, 1);
  for (Program& program : programs_) program = {.gpu = program.gpu, .runs = 1, .waits = 0};
  Pass(10);
  EXPECT_FALSE(balancer_.AnyOver({.most_moving = 0}));
  EXPECT_FALSE(Next());
}

TEST_F(BalancerTest, TheNextOneGoesWhenWhatIsSeenIsOfTheNewSituation) {
  gpus_ = 3;
  programs_.assign(3, {.gpu = 0, .runs = 1.0 / 3, .waits = 2.0 / 3});
  Pass(3);
  const auto first = Next();
  ASSERT_TRUE(first);
  GoesTo(first->dweller, first->to);
  Pass(1);
  EXPECT_FALSE(Next());
  Pass(static_cast<int>(Balancer::kWindow / Balancer::kEvery));
  const auto second = Next();
  ASSERT_TRUE(second);
  EXPECT_NE(second->dweller, first->dweller);
  EXPECT_NE(second->to, first->to);
}

TEST_F(BalancerTest, OneThatHasMovedStaysForAWhile) {
  programs_ = {{.gpu = 0, .runs = 0.5, .waits = 0.5, .pause = 9 * kSecond}, {.gpu = 0, .runs = 0.5, .waits = 0.5}};
  Pass(2);
  ASSERT_EQ(Next()->dweller, 1u) << "its move is the shorter one";
  GoesTo(1, 1);
  Pass(1);
  programs_[0] = {.gpu = 1, .runs = 0.5, .waits = 0.5, .pause = 9 * kSecond};  // by somebody else
  Pass(10);
  EXPECT_FALSE(Next());
  Pass(20);
  EXPECT_EQ(Next()->dweller, 1u);
  GoesTo(1, 0);
  Pass(1);
  GoesTo(1, 1);
  Pass(50);
  EXPECT_EQ(Next()->dweller, 1u) << "the other one stays for 90 s";
}

TEST_F(BalancerTest, OneThatCouldNotGoIsNotSentAgainSoon) {
  programs_ = {{.gpu = 0, .runs = 0.5, .waits = 0.5}, {.gpu = 0, .runs = 0.5, .waits = 0.5, .pause = 9 * kSecond}};
  Pass(2);
  ASSERT_EQ(Next()->dweller, 0u);
  programs_[0].moves = true;
  Pass(7);
  EXPECT_FALSE(Next()) << "it is on its way";
  programs_[0].moves = false;
  Pass(7);
  EXPECT_EQ(Next()->dweller, 1u);
  Pass(7);
  EXPECT_FALSE(Next());
  Pass(600);
  EXPECT_EQ(Next()->dweller, 0u);
}

// A server beside a batch job: little is gained each second, but for a long time.
TEST_F(BalancerTest, WhatLastsIsWorthMore) {
  programs_ = {{.gpu = 0, .runs = 0.9, .waits = 0.1, .pause = 30 * kSecond}, {.gpu = 0, .runs = 0.1, .waits = 0.1}};
  Pass(100);
  EXPECT_FALSE(Next());
  Pass(100);
  ASSERT_TRUE(Next());
}

TEST_F(BalancerTest, WhoseLimitIsSmallWantsNoMore) {
  programs_ = {{.gpu = 0, .runs = 0.2, .waits = 0.8}};
  Pass(1);
  for (Balancer::Seen& seen : seen_) seen.most = 0.3;
  Pass(2);
  EXPECT_EQ(balancer_.WantedOf(1), 0.3);
  EXPECT_EQ(balancer_.WantedOf(9), 0) << "nobody knows it";
}

TEST_F(BalancerTest, ItSeesNoMoreThanTheWindow) {
  programs_ = {{.gpu = 0, .runs = 1}};
  Pass(100);
  EXPECT_EQ(balancer_.WantedOf(1), 1);
  programs_[0].runs = 0;
  Pass(static_cast<int>(Balancer::kWindow / Balancer::kEvery));
  EXPECT_EQ(balancer_.WantedOf(1), 0);
}

}  // namespace
}  // namespace tessera::sched
