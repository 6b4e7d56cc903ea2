// vGPUs of one space hold the token together, as long as their SMs suffice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "base/testing/same_cases.h"
#include "sched/shares/admission.h"
#include "sched/testing/milliseconds.h"
#include "sched/tokens/token_scheduler.h"

namespace tessera::sched {
namespace {

Shares InSpace(std::uint32_t space, double sm_pct, double request_pct = 0) {
  return {.request_pct = request_pct, .space = {space, sm_pct}};
}

// A space of busy vGPUs that obey at once.
class SpaceOfBusy {
 public:
  bool Add(double sm_pct, double request_pct) {
    const auto id = static_cast<VgpuId>(requests_.size() + 1);
    if (!scheduler_.Add(id, InSpace(1, sm_pct, request_pct))) return false;
    requests_[id] = request_pct;
    return true;
  }

  // The least part of a request that was served in ten seconds.
  double LeastKept() {
    for (const auto& [id, _] : requests_) scheduler_.Wants(id, 0);
    constexpr Nanos kEnd = 10 * kSecond;
    for (Nanos now = 0; now <= kEnd; now = std::max(now, scheduler_.NextDeadline())) {
      scheduler_.Advance(now);
      Obey(now);
    }
    double least = INFINITY;
    for (const auto& [id, request_pct] : requests_) {
      const double got = 100.0 * static_cast<double>(scheduler_.UsageOf(id, kEnd).busy) / kEnd;
      least = std::min(least, got / request_pct);
    }
    return least;
  }

 private:
  void Obey(Nanos now) {
    for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
      for (const Decision& decision : decisions) {
        if (decision.kind != Decision::Kind::kRevoke) continue;
        scheduler_.Wants(decision.vgpu, now);
        scheduler_.Released(decision.vgpu, now, now);
      }
    }
  }

  TokenScheduler scheduler_;
  std::map<VgpuId, double> requests_;
};

// Clients that obey at once: what is revoked has drained and asks again.
class TokenSpacesTest : public testing::Test {
 protected:
  void Add(VgpuId id, Shares shares) {
    ASSERT_TRUE(scheduler_.Add(id, shares));
    places_[id] = shares.space;
  }

  void Wants(VgpuId id) {
    busy_.insert(id);
    scheduler_.Wants(id, now_);
    Obey();
  }

  void Change(VgpuId id, Shares shares) {
    places_[id] = shares.space;
    ASSERT_TRUE(scheduler_.Update(id, shares, now_));
    Obey();
  }

  void Rests(VgpuId id) {
    busy_.erase(id);
    holders_.erase(id);
    scheduler_.Idle(id, now_, now_);
    Obey();
  }

  void RunFor(Nanos duration) {
    const Nanos end = now_ + duration;
    while (scheduler_.NextDeadline() <= end) {
      now_ = std::max(now_, scheduler_.NextDeadline());
      scheduler_.Advance(now_);
      Obey();
    }
    now_ = end;
    scheduler_.Advance(now_);
    Obey();
  }

  void Obey() {
    for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
      for (const Decision& decision : decisions) {
        if (decision.kind == Decision::Kind::kGrant) {
          holders_.insert(decision.vgpu);
        } else {
          holders_.erase(decision.vgpu);
        }
      }
      CheckHolders();
      for (const Decision& decision : decisions) {
        if (decision.kind != Decision::Kind::kRevoke) continue;
        if (busy_.contains(decision.vgpu)) scheduler_.Wants(decision.vgpu, now_);
        scheduler_.Released(decision.vgpu, now_, now_);
      }
    }
  }

  void CheckHolders() const {
    double sms = 0;
    std::set<std::uint32_t> spaces;
    for (const VgpuId id : holders_) {
      sms += places_.at(id).taken_pct();
      spaces.insert(places_.at(id).number);
    }
    EXPECT_LE(sms, 100.001) << "at " << now_;
    EXPECT_LE(spaces.size(), 1u) << "at " << now_;
  }

  double BusyPct(VgpuId id, Nanos since = 0, Nanos busy_before = 0) const {
    return 100.0 * static_cast<double>(scheduler_.UsageOf(id, now_).busy - busy_before) /
           static_cast<double>(now_ - since);
  }

  TokenScheduler scheduler_;
  std::map<VgpuId, SpacePlace> places_;
  std::set<VgpuId> holders_;
  std::set<VgpuId> busy_;
  Nanos now_ = 0;
};

TEST_F(TokenSpacesTest, ABurstNeedsSmsOfItsOwn) {
  Shares shares{.space = {.number = 1, .sm_pct = 30, .burst = true}};
  EXPECT_FALSE(Validate(shares));
  shares.space.reserved = true;
  EXPECT_TRUE(Validate(shares));
}

TEST_F(TokenSpacesTest, AnSmLimitNeedsASpaceAndIsAPercentage) {
  EXPECT_EQ(scheduler_.Add(1, InSpace(0, 50)).error().code, EINVAL);
  EXPECT_EQ(scheduler_.Add(1, InSpace(1, 0)).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, InSpace(1, 100.5)).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, InSpace(1, NAN)).error().code, ERANGE);
}

TEST_F(TokenSpacesTest, TimeNeededPacksRectangles) {
  EXPECT_EQ(TimeNeeded({}), 0);
  EXPECT_EQ(TimeNeeded({{.request_pct = 30}, {.request_pct = 20}}), 50) << "alone, one after the other";
  EXPECT_EQ(TimeNeeded({InSpace(1, 50, 30), InSpace(1, 50, 20)}), 30) << "side by side";
  EXPECT_EQ(TimeNeeded({InSpace(1, 50, 30), InSpace(2, 50, 20)}), 50) << "two spaces take turns";
  EXPECT_EQ(TimeNeeded({InSpace(1, 60, 30), InSpace(1, 50, 20)}), 50) << "too many SMs for both";
  EXPECT_EQ(TimeNeeded({InSpace(1, 10), {.request_pct = 40}}), 40) << "without a request nothing is needed";
}

TEST_F(TokenSpacesTest, TheMixOfFastGshareFitsAndNothingMore) {
  std::vector<Shares> mix;
  for (int i = 0; i < 4; ++i) mix.push_back(InSpace(1, 12, 40));
  for (int i = 0; i < 2; ++i) mix.push_back(InSpace(1, 24, 40));
  for (int i = 0; i < 2; ++i) mix.push_back(InSpace(1, 50, 60));
  EXPECT_EQ(TimeNeeded(mix), 100);
  const auto refused = CheckRequests(mix, InSpace(1, 12, 40));
  ASSERT_EQ(refused.error().code, ENOSPC);
  EXPECT_EQ(
      refused.error().message,
      "compute.request 40 on 12 % of the SMs does not fit: all requests need 140 of 100, 40 too many; 100 without "
      "this one");
  EXPECT_TRUE(CheckRequests(mix, InSpace(1, 12)));
}

TEST_F(TokenSpacesTest, MembersThatFitHoldTogetherWithoutAnEnd) {
  Add(1, InSpace(1, 50));
  Add(2, InSpace(1, 50));
  Wants(1);
  Wants(2);
  EXPECT_THAT(holders_, testing::ElementsAre(1, 2));
  EXPECT_EQ(scheduler_.NextDeadline(), kNever) << "nobody waits for either's end";
  RunFor(kSecond);
  EXPECT_NEAR(BusyPct(1), 100, 0.1);
  EXPECT_NEAR(BusyPct(2), 100, 0.1);
}

TEST_F(TokenSpacesTest, MembersThatDoNotFitTakeTurns) {
  Add(1, InSpace(1, 60));
  Add(2, InSpace(1, 50));
  Add(3, InSpace(1, 40));
  for (const VgpuId id : {1, 2, 3}) Wants(id);
  RunFor(10 * kSecond);
  EXPECT_NEAR(BusyPct(1), 50, 3);
  EXPECT_NEAR(BusyPct(2), 50, 3);
  EXPECT_GT(BusyPct(3), 90) << "it fits beside either";
}

TEST_F(TokenSpacesTest, InTurnsOneHoldsItAtATimeByWeight) {
  const auto shares = [](std::uint32_t weight, bool in_turns) {
    return Shares{.weight = weight, .space = {.number = 1, .sm_pct = 50, .in_turns = in_turns}};
  };
  Add(1, shares(300, true));
  Add(2, shares(100, true));
  Wants(1);
  Wants(2);
  RunFor(10 * kSecond);
  EXPECT_NEAR(BusyPct(1), 75, 2);
  EXPECT_NEAR(BusyPct(2), 25, 2);
  for (const VgpuId id : {1, 2}) Change(id, shares(100, false));
  EXPECT_THAT(holders_, testing::ElementsAre(1, 2)) << "at once";
  EXPECT_TRUE(TimeNeeded({InSpace(1, 50, 40), InSpace(1, 50, 40)}) == 40) << "turns admit no more, and no less";
  // CheckHolders looks at all at once, and these change one after the other.
  for (const VgpuId id : {1, 2}) places_[id].in_turns = false;
  for (const VgpuId id : {1, 2}) ASSERT_TRUE(scheduler_.Update(id, shares(100, true), now_));
  Obey();
  for (const VgpuId id : {1, 2}) places_[id].in_turns = true;
  RunFor(kMs);
  EXPECT_EQ(holders_.size(), 1u);
}

// A place that takes fewer SMs fits where the wider one did.
TEST_F(TokenSpacesTest, OneThatNeedsFewerSmsThanBeforeKeepsTheToken) {
  Add(1, InSpace(1, 60));
  Wants(1);
  ASSERT_TRUE(scheduler_.Update(1, InSpace(1, 40), now_));
  for (const Decision& decision : scheduler_.TakeDecisions()) EXPECT_EQ(decision.kind, Decision::Kind::kGrant);
  ASSERT_TRUE(scheduler_.Update(1, InSpace(1, 70), now_));
  EXPECT_TRUE(std::ranges::any_of(scheduler_.TakeDecisions(),
                                  [](const Decision& decision) { return decision.kind == Decision::Kind::kRevoke; }));
}

TEST_F(TokenSpacesTest, SpacesAndVgpusAloneTakeTurns) {
  Add(1, InSpace(1, 50));
  Add(2, InSpace(1, 50));
  Add(3, InSpace(2, 100));
  Add(4, {});
  for (const VgpuId id : {1, 2, 3, 4}) Wants(id);
  RunFor(10 * kSecond);
  for (const VgpuId id : {1, 2, 3, 4}) EXPECT_NEAR(BusyPct(id), 33.3, 3) << id;
}

TEST_F(TokenSpacesTest, ALargeMemberIsNotStarvedBySmallOnes) {
  Add(1, InSpace(1, 100));
  for (VgpuId id = 2; id < 12; ++id) Add(id, InSpace(1, 10));
  for (VgpuId id = 1; id < 12; ++id) Wants(id);
  RunFor(10 * kSecond);
  for (VgpuId id = 1; id < 12; ++id) EXPECT_NEAR(BusyPct(id), 50, 5) << id;
}

TEST_F(TokenSpacesTest, ARequestIsKeptAgainstTheOthersOfTheSpace) {
  Add(1, InSpace(1, 60, 70));
  Add(2, InSpace(1, 60));
  Add(3, InSpace(1, 60));
  for (const VgpuId id : {1, 2, 3}) Wants(id);
  RunFor(10 * kSecond);
  EXPECT_GE(BusyPct(1), 69.5);
  EXPECT_GE(BusyPct(1) + BusyPct(2) + BusyPct(3), 99);
}

TEST_F(TokenSpacesTest, TheTimesOfFastGsharesMixAreKept) {
  std::map<VgpuId, double> requests;
  const auto add = [&](int count, double sm_pct, double request) {
    for (int i = 0; i < count; ++i) {
      const VgpuId id = static_cast<VgpuId>(requests.size() + 1);
      requests[id] = request;
      Add(id, InSpace(1, sm_pct, request));
    }
  };
  add(4, 12, 40);
  add(2, 24, 40);
  add(2, 50, 60);
  for (const auto& [id, _] : requests) Wants(id);
  RunFor(20 * kSecond);
  for (const auto& [id, request] : requests) EXPECT_GE(BusyPct(id), request * 0.99) << id;
}

// Mixes that are filled until nothing more is admitted. docs/scheduler.md tells of larger numbers of them.
TEST(TokenSpaces, RequestsOfAdmittedMixesAreKept) {
  std::mt19937 random(7);
  for (int mix = 0; mix < 200; ++mix) {
    SpaceOfBusy space;
    for (int refused = 0; refused < 20;) {
      const double sm_pct = 5 + random() % 96;
      const double request_pct = 5 + random() % 90;
      if (!space.Add(sm_pct, request_pct)) ++refused;
    }
    EXPECT_GE(space.LeastKept(), 0.97) << "mix " << mix;
  }
}

RC_GTEST_PROP(TokenSpacesProperty, LessIsNeverRefused, ()) {
  TokenScheduler scheduler;
  std::map<VgpuId, Shares> vgpus;
  const auto pct = [](int least, int most) { return *rc::gen::inRange(least, most + 1); };
  for (VgpuId id = 1; id <= 20; ++id) {
    const Shares shares = InSpace(1, pct(1, 100), pct(0, 60));
    if (scheduler.Add(id, shares)) vgpus[id] = shares;
  }
  for (int change = 0; change < 30; ++change) {
    auto& [id, shares] = *std::next(vgpus.begin(), pct(0, static_cast<int>(vgpus.size()) - 1));
    shares.request_pct = pct(0, static_cast<int>(shares.request_pct));
    shares.space.sm_pct = pct(1, static_cast<int>(shares.space.sm_pct));
    RC_ASSERT(scheduler.Update(id, shares, 0).has_value());
  }
}

TEST_F(TokenSpacesTest, ALimitHoldsForEachMember) {
  Add(1, {.limit_pct = 30, .space = {1, 50}});
  Add(2, InSpace(1, 50));
  Wants(1);
  Wants(2);
  RunFor(10 * kSecond);
  EXPECT_NEAR(BusyPct(1), 30, 0.5);
  EXPECT_NEAR(BusyPct(2), 100, 0.1);
}

TEST_F(TokenSpacesTest, AMemberThatMovesGivesTheTokenBack) {
  Add(1, InSpace(1, 50));
  Add(2, InSpace(1, 50));
  Wants(1);
  Wants(2);
  places_[2] = {1, 60};
  ASSERT_TRUE(scheduler_.Update(2, InSpace(1, 60), now_));
  Obey();
  EXPECT_EQ(holders_.size(), 1u);
  RunFor(kSecond);
  places_[2] = {1, 50};
  ASSERT_TRUE(scheduler_.Update(2, InSpace(1, 50), now_));
  Obey();
  RunFor(100 * kMs);
  EXPECT_THAT(holders_, testing::ElementsAre(1, 2));
}

TEST_F(TokenSpacesTest, SmsAreFreeAgainWhenAMemberRestsOrGoes) {
  Add(1, InSpace(1, 60));
  Add(2, InSpace(1, 60));
  Wants(1);
  Wants(2);
  Rests(1);
  EXPECT_THAT(holders_, testing::ElementsAre(2));
  holders_.erase(2);
  scheduler_.Remove(2, now_);
  Wants(1);
  EXPECT_THAT(holders_, testing::ElementsAre(1));
}

}  // namespace
}  // namespace tessera::sched
