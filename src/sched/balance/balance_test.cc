#include "sched/balance/balance.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/size.h"
#include "base/testing/same_cases.h"
#include "sched/packing/town.h"

namespace tessera::sched {
namespace {

constexpr BalanceRules kRules{.bytes_per_second = 20e9};

// GPUs of 48 GiB, and what is on them.
class Node {
 public:
  explicit Node(std::size_t gpus)
      : homes(gpus, {.type = "A", .memory = 48 * kGiB, .place = 1024 * kGiB, .resident = 48 * kGiB}) {}

  void Add(std::size_t home, double time, std::uint64_t memory = kGiB, Nanos pause = kSecond) {
    dwellers.push_back({.home = home,
                        .needs = {.owner = 1, .claim = {.sms = kWhole}},
                        .held = memory,
                        .bytes = memory,
                        .group = dwellers.size()});
    wanted.push_back({.time = time, .memory = memory, .pause = pause});
  }
  std::optional<Rehoming::Move> Best() const { return Balance(homes, dwellers, wanted, kRules); }
  double Load(std::size_t home) const {
    double time = 0, working = 0;
    for (std::size_t i = 0; i < dwellers.size(); ++i) {
      if (dwellers[i].home != home) continue;
      time += wanted[i].time;
      if (wanted[i].time > 0) working += static_cast<double>(wanted[i].memory);
    }
    return LoadOf(time, working, static_cast<double>(homes[home].memory), kRules);
  }
  double Beyond() const {  // squares count more, as in Balance
    double sum = 0;
    for (std::size_t home = 0; home < homes.size(); ++home) {
      const double over = std::max(0.0, Load(home) - 1);
      sum += over + over * over / 2;
    }
    return sum;
  }

  std::vector<Home> homes;
  std::vector<Dweller> dwellers;
  std::vector<Wanted> wanted;
};

using Move = Rehoming::Move;

TEST(Balance, OneOfTwoThatAlwaysHaveWorkGoesToTheGpuThatHasNone) {
  Node node(2);
  node.Add(0, 1);
  node.Add(0, 1);
  EXPECT_EQ(node.Best(), (Move{0, 1}));
  node.dwellers[0].home = 1;
  EXPECT_FALSE(node.Best());
}

TEST(Balance, ThreeOnTwoGpusStay) {
  Node node(2);
  for (const std::size_t home : {0, 0, 1}) node.Add(home, 1);
  EXPECT_FALSE(node.Best()) << "the other two would share then";
}

TEST(Balance, TheSumIsSpreadAlsoWhereNoGpuHasTimeToSpare) {
  Node node(2);
  for (const std::size_t home : {0, 0, 0, 0, 1}) node.Add(home, 1);
  ASSERT_TRUE(node.Best());
  EXPECT_EQ(node.Best()->to, 1u);
}

TEST(Balance, NobodyMovesForWhatIsLessThanTheMoveTakes) {
  Node node(2);
  for (const double time : {0.6, 0.3, 0.3}) node.Add(0, time, kGiB, 23 * kSecond);
  EXPECT_FALSE(node.Best()) << "0.2 of a GPU for 30 s, and 0.02 for each being late: 6.6 s; 0.3 of 23 s are 6.9 s";
  for (Wanted& each : node.wanted) each.lasts = 40 * kSecond;
  EXPECT_TRUE(node.Best());
  EXPECT_FALSE(Balance(node.homes, node.dwellers, node.wanted, {.least_worth = 5}));
}

TEST(Balance, OfTwoThatHelpAlikeTheCheaperOneMoves) {
  Node node(2);
  node.Add(0, 0.6, kGiB, 2 * kSecond);
  node.Add(0, 0.6, kGiB, kSecond);
  EXPECT_EQ(node.Best(), (Move{1, 1}));
}

TEST(Balance, OfGpusThatHelpAlikeTheEmptiestTakesIt) {
  Node node(4);
  node.Add(0, 1);
  node.Add(0, 0.6, 20 * kGiB);
  node.Add(1, 0.3, 30 * kGiB);
  node.Add(2, 0.3, kGiB);
  node.Add(3, 0.35, kGiB);
  EXPECT_EQ(node.Best(), (Move{1, 2})) << "memory counts as time does";
}

TEST(Balance, GpusWithTimeToSpareAreLeftAlone) {
  Node node(2);
  node.Add(0, 0.5);
  node.Add(0, 0.49);
  EXPECT_FALSE(node.Best());
}

// Two of 30 GiB take turns on a GPU of 48, and moves take some of its time.
TEST(Balance, MovesOfMemoryCountAsWork) {
  Node node(2);
  node.Add(0, 0.5, 30 * kGiB);
  node.Add(0, 0.5, 30 * kGiB);
  EXPECT_NEAR(node.Load(0), 1.064, 0.001);
  EXPECT_TRUE(node.Best());
  node.wanted[1].time = 0;
  EXPECT_EQ(node.Load(0), 0.5) << "what has no work is moved out once, and stays";
}

TEST(Balance, WhoStaysStays) {
  Node node(2);
  node.Add(0, 1);
  node.Add(0, 1);
  node.wanted[0].stays = true;
  EXPECT_EQ(node.Best(), (Move{1, 1}));
  node.dwellers[1].stays = "it uses memory of another program";
  EXPECT_FALSE(node.Best());
  node.dwellers[1].stays.clear();
  node.dwellers[1].needs.space = "s";
  EXPECT_FALSE(node.Best()) << "a space stays together";
}

TEST(Balance, WhoHasAProgramInCommonWithAnotherOneStays) {
  Node node(3);
  node.Add(0, 1);
  node.Add(0, 1);
  node.Add(2, 0);
  node.dwellers[0].group = node.dwellers[2].group;
  EXPECT_EQ(node.Best(), (Move{1, 1}));
}

TEST(Balance, PromisesAreKept) {
  Node node(2);
  for (int i = 0; i < 2; ++i) node.Add(0, 1);
  node.dwellers[0].needs.claim.time = 40 * kPercent;
  node.dwellers[1].needs.claim.time = 60 * kPercent;
  node.Add(1, 0);
  node.dwellers[2].needs.claim.time = 50 * kPercent;
  EXPECT_EQ(node.Best(), (Move{0, 1}));
  node.dwellers[2].needs.claim.time = 70 * kPercent;
  EXPECT_FALSE(node.Best());
}

TEST(Balance, NobodyGoesToAGpuThatTakesNobodyOrIsOfAnotherType) {
  Node node(3);
  node.Add(0, 1);
  node.Add(0, 1);
  node.homes[1].unusable = "it drains";
  node.homes[2].type = "B";
  EXPECT_FALSE(node.Best());
  node.homes[0].unusable = "it drains";
  node.homes[2].type = "A";
  EXPECT_TRUE(node.Best()) << "a GPU that drains may be left";
}

TEST(WantedTime, PausesAreAsLongAsTheyWouldBeAlone) {
  EXPECT_EQ(WantedTime(0, 0, kSecond), 0);
  EXPECT_EQ(WantedTime(400, 400, 1000), 0.4) << "it never waited";
  EXPECT_EQ(WantedTime(200, 800, 1000), 0.5) << "200 of work, 200 of pauses";
  EXPECT_EQ(WantedTime(300, 1000, 1000), 1) << "it always has work";
  EXPECT_EQ(WantedTime(0, 1000, 1000), 1) << "it was kept off";
}

// Alone on its type of GPU there is always a first move and a last one.
RC_GTEST_PROP(Balance, EachMoveIsWorthIt_AndTheyEnd, ()) {
  const auto between = [](std::size_t least, std::size_t most) { return *rc::gen::inRange(least, most + 1); };
  Node node(between(2, 8));
  const std::size_t count = between(1, 20);
  for (std::size_t i = 0; i < count; ++i) {
    node.Add(between(0, node.homes.size() - 1), static_cast<double>(between(0, 10)) / 10, between(1, 40) * kGiB,
             static_cast<Nanos>(between(0, 4)) * kSecond + kMillisecond);
    node.dwellers.back().needs.claim.time = static_cast<Part>(between(0, 3)) * kPercent;
  }
  std::size_t moves = 0;
  while (const auto move = node.Best()) {
    RC_ASSERT(++moves <= 10 * count);
    Dweller& dweller = node.dwellers[move->dweller];
    RC_ASSERT(move->to != dweller.home);
    RC_ASSERT(node.Load(dweller.home) > 1);
    const double before = node.Beyond();
    dweller.home = move->to;
    const Wanted& wanted = node.wanted[move->dweller];
    const double gain = (before - node.Beyond()) * static_cast<double>(wanted.lasts);
    RC_ASSERT(gain + 1 > wanted.time * static_cast<double>(wanted.pause));
  }
}

}  // namespace
}  // namespace tessera::sched
