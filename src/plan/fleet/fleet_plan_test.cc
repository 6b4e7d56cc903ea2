#include "plan/fleet/fleet_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/size.h"
#include "plan/fleet/needs.h"

namespace tessera::plan {
namespace {

GpuModel Gpu(std::uint64_t gib = 80) {
  GpuModel gpu;
  gpu.name = "test";
  gpu.title = "Test GPU";
  gpu.memory = gib * kGiB;
  gpu.space_speed = 1;
  return gpu;
}

Tenant SpeedOf(const std::string& name, double pct, const std::string& group = "") {
  Tenant tenant{.name = name, .group = group, .memory = kGiB, .service = 10 * kMillisecond};
  tenant.goal = sched::SpeedGoal{pct};
  return tenant;
}

PlanQuestion Question(PlanPolicy policy = PlanPolicy::kTessera) {
  return {.gpu = Gpu(), .policy = policy, .search = 0, .simulate = 20 * kSecond};
}

FleetPlan PlanOf(const Workload& workload, const PlanQuestion& question) {
  auto plan = PlanFleet(workload, question);
  EXPECT_TRUE(plan) << plan.error().Text();
  return plan ? *plan : FleetPlan();
}

TEST(FleetPlan, ThirdsFillOneGpuAndAreKept) {
  const Workload workload{.tenants = {SpeedOf("a", 66.6), SpeedOf("b", 33.3)}};
  const FleetPlan plan = PlanOf(workload, Question());
  EXPECT_EQ(plan.gpus.size(), 1U);
  EXPECT_TRUE(plan.attained[0].kept) << plan.attained[0].speed.value;
  EXPECT_TRUE(plan.attained[1].kept) << plan.attained[1].speed.value;
  EXPECT_NEAR(plan.attained[0].speed.value, 0.666, 0.02);
}

TEST(FleetPlan, ASpaceHoldsWhatTimeAloneDoesNot) {
  Workload workload;
  for (const char* name : {"a", "b", "c"}) {
    workload.tenants.push_back(SpeedOf(name, 70, "lab"));
    workload.tenants.back().speed = SpeedCurve::Saturating(0.3);
  }
  EXPECT_EQ(PlanOf(workload, Question(PlanPolicy::kTime)).gpus.size(), 3U);
  const FleetPlan plan = PlanOf(workload, Question());
  ASSERT_EQ(plan.gpus.size(), 1U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(plan.placement.seats[i].in_space);
    EXPECT_TRUE(plan.attained[i].kept) << plan.attained[i].speed.value;
  }
  for (Tenant& tenant : workload.tenants) tenant.group.clear();
  EXPECT_EQ(PlanOf(workload, Question()).gpus.size(), 3U) << "who trusts nobody shares no space";
}

TEST(FleetPlan, WhatIsSlowerBesideOthersNeedsMoreSms) {
  Tenant tenant = SpeedOf("a", 50, "lab");
  const auto width = [&] { return NeedsOf({.tenants = {tenant}}, Gpu(), {})[0].ways.front().size.sms; };
  const auto before = width();
  tenant.beside = 0.5;
  EXPECT_NEAR(sched::PctOf(width()), 2 * sched::PctOf(before), 1);
}

TEST(FleetPlan, AMarginIsGivenBeyondTheGoal) {
  const Workload workload{.tenants = {SpeedOf("a", 50)}};
  const auto time = [&](double margin) {
    return sched::PctOf(NeedsOf(workload, Gpu(), {.margin = margin})[0].ways.back().size.time);
  };
  EXPECT_NEAR(time(0), 49.5, 0.01);
  EXPECT_NEAR(time(0.2), 59.5, 0.01);
  EXPECT_NEAR(time(2), 100, 0.01);
}

TEST(FleetPlan, ALatencyGoalIsKeptBesideBatchWork) {
  Workload workload;
  Tenant& service = workload.tenants.emplace_back();
  service = {.name = "service", .memory = kGiB, .service = 5 * kMillisecond};
  service.arrivals = {.kind = Arrivals::Kind::kPoisson, .per_second = 20};
  service.goal = sched::LatencyGoal{99, 40 * kMillisecond};
  workload.tenants.push_back({.name = "batch", .memory = kGiB, .service = 50 * kMillisecond});
  PlanQuestion question = Question();
  question.simulate = 120 * kSecond;
  const FleetPlan plan = PlanOf(workload, question);
  ASSERT_EQ(plan.gpus.size(), 1U);
  EXPECT_TRUE(plan.attained[0].kept) << plan.attained[0].in_time.value;
  EXPECT_EQ(plan.attained[0].why, "");
  EXPECT_GT(plan.attained[1].gpu_pct, 70);
}

TEST(FleetPlan, AGoalThatNobodyCanKeepIsSaidAtOnce) {
  Workload workload{.tenants = {SpeedOf("a", 50)}};
  workload.tenants[0].request_pct = 50;
  workload.tenants[0].memory = 100 * kGiB;
  const auto plan = PlanFleet(workload, Question());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ENOSPC);
  EXPECT_NE(plan.error().message.find("tenant a fits on no Test GPU"), std::string::npos) << plan.error().message;

  // A burst of 10 ms cannot end in 5.
  Tenant late{.name = "late", .memory = kGiB, .service = 10 * kMillisecond};
  late.arrivals = {.kind = Arrivals::Kind::kPoisson, .per_second = 1};
  late.goal = sched::LatencyGoal{99, 5 * kMillisecond};
  const FleetPlan missed = PlanOf({.tenants = {late}}, Question());
  EXPECT_FALSE(missed.attained[0].kept);
  EXPECT_EQ(missed.attained[0].verdict, "missed");
  EXPECT_EQ(missed.attained[0].why, "its bursts need at least 10 ms alone, the goal is 5 ms");
}

TEST(FleetPlan, ALatencyGoalThatAGpuAloneMissesSaysWhy) {
  Tenant tenant{.name = "a", .service = 10 * kMillisecond};
  const auto why = [&] { return WhyOutOfReach(tenant, Gpu()); };
  tenant.arrivals = {.kind = Arrivals::Kind::kPoisson, .per_second = 20};
  EXPECT_EQ(why(), "") << "no goal";
  tenant.goal = sched::SpeedGoal{100};
  EXPECT_EQ(why(), "");
  tenant.goal = sched::LatencyGoal{99, 100 * kMillisecond};
  EXPECT_EQ(why(), "");
  tenant.arrivals.per_second = 120;
  EXPECT_EQ(why(), "120 bursts a second need 120 % of a GPU");
  tenant.arrivals.per_second = 90;
  EXPECT_EQ(why(), "90 bursts a second wait too long for one another, alone as well");
  tenant.arrivals.kind = Arrivals::Kind::kEven;
  EXPECT_EQ(why(), "") << "they come one after the other";

  tenant.service = 2500 * kMillisecond;
  EXPECT_EQ(why(), "its bursts need at least 2.5 s alone, the goal is 100 ms");

  tenant.arrivals = {.kind = Arrivals::Kind::kTimes};
  tenant.arrivals.services.assign(99, 10 * kMillisecond);
  tenant.arrivals.services.push_back(200 * kMillisecond);
  EXPECT_EQ(why(), "") << "one of a hundred may take longer";
  tenant.arrivals.services.front() = 200 * kMillisecond;
  EXPECT_EQ(why(), "2 % of its bursts need more than 100 ms alone");
}

TEST(FleetPlan, FewerGpusThanNeededRefuseAndSaySo) {
  const Workload workload{.tenants = {SpeedOf("a", 60), SpeedOf("b", 60)}};
  PlanQuestion question = Question();
  question.gpus = 1;
  const FleetPlan plan = PlanOf(workload, question);
  EXPECT_EQ(plan.refused, 1U);
  EXPECT_EQ(plan.attained[1].verdict, "not placed");
  EXPECT_FALSE(plan.attained[1].kept);
}

TEST(FleetPlan, MemoryAlonePromisesNoTimeSoGoalsAreMissed) {
  const Workload workload{.tenants = {SpeedOf("a", 60), SpeedOf("b", 60)}};
  const FleetPlan plan = PlanOf(workload, Question(PlanPolicy::kMemory));
  EXPECT_EQ(plan.gpus.size(), 1U);
  ASSERT_EQ(plan.attained.size(), 2U);
  for (const Attainment& got : plan.attained) EXPECT_FALSE(got.kept) << got.speed.value;
}

// Two that are busy in turns, a minute each, with more memory together than there is.
Workload Alternating() {
  Workload workload{.length = 1200 * kSecond, .interval = 60 * kSecond};
  for (int number = 0; number < 2; ++number) {
    Tenant tenant{.name = "t" + std::to_string(number), .memory = 60 * kGiB};
    for (int i = 0; i < 20; ++i) {
      const float duty = i % 4 / 2 == number ? 0.8F : 0;
      tenant.samples.push_back({.at = i * 60 * kSecond, .duty = duty, .memory = 60 * kGiB});
    }
    workload.tenants.push_back(std::move(tenant));
  }
  return workload;
}

TEST(FleetPlan, ARecordIsPackedByWhatWorksAtTheSameTimeAndSwapped) {
  const Workload workload = Alternating();
  EXPECT_EQ(PlanOf(workload, Question(PlanPolicy::kMemory)).gpus.size(), 2U);
  const FleetPlan plan = PlanOf(workload, Question());
  ASSERT_EQ(plan.gpus.size(), 1U);
  EXPECT_EQ(plan.over, 0);
  for (const Attainment& got : plan.attained) {
    EXPECT_GT(got.bytes_moved, 100 * kGiB);
    EXPECT_NEAR(got.gpu_pct, 40, 1) << "all that it did then";
    EXPECT_GT(got.speed.value, 0.999) << "all but what begins in the last moment";
  }
}

// Of three that do not fit together one works, after a minute.
TEST(FleetPlan, WhoCameFirstBeforeARecordHasLeftTheGpuWhenItBegins) {
  const auto waited = [](std::size_t works) {
    Workload workload{.length = 180 * kSecond, .interval = 60 * kSecond};
    for (std::size_t i = 0; i < 3; ++i) {
      Tenant tenant{.name = "t" + std::to_string(i), .memory = 32 * kGiB};
      for (const Nanos at : {0, 60, 120})
        tenant.samples.push_back({at * kSecond, i == works && at == 60 ? 0.5F : 0, 32 * kGiB});
      workload.tenants.push_back(std::move(tenant));
    }
    PlanQuestion question = Question();
    question.gpus = 1;
    const FleetPlan plan = PlanOf(workload, question);
    EXPECT_EQ(plan.refused, 0U);
    EXPECT_EQ(plan.simulated, 180 * kSecond) << "without what came before";
    return plan.attained[works].waited_memory_pct;
  };
  EXPECT_GT(waited(0), 0);
  EXPECT_EQ(waited(1), 0);
  EXPECT_EQ(waited(2), 0);
}

TEST(FleetPlan, TheSameQuestionHasTheSameAnswer) {
  const Workload workload = Alternating();
  const FleetPlan one = PlanOf(workload, Question());
  const FleetPlan other = PlanOf(workload, Question());
  EXPECT_EQ(one.events, other.events);
  EXPECT_EQ(one.attained[0].p99, other.attained[0].p99);
}

TEST(FleetPlan, AJobOnTwoGpusIsOnTwo) {
  Workload workload{.tenants = {SpeedOf("job", 40), SpeedOf("a", 50), SpeedOf("b", 50)}};
  workload.tenants[0].gpus = 2;
  const FleetPlan plan = PlanOf(workload, Question());
  EXPECT_EQ(plan.gpus.size(), 2U);
  EXPECT_EQ(plan.placement.seats[0].gpus.size(), 2U);
  EXPECT_TRUE(plan.attained[0].kept) << plan.attained[0].speed.value;
}

TEST(TimeForLatency, GrowsWithTheLoadAndIsAllWhereTheGoalIsOutOfReach) {
  const sched::LatencyGoal goal{99, 50 * kMillisecond};
  const double light = TimeForLatency(goal, 5 * kMillisecond, 10);
  const double heavy = TimeForLatency(goal, 5 * kMillisecond, 60);
  EXPECT_LT(light, heavy);
  EXPECT_GT(light, 0.1);
  EXPECT_EQ(TimeForLatency(goal, 60 * kMillisecond, 1), 1);
}

TEST(Estimates, CoverWhatTheyShould) {
  const Estimate mean = EstimateMean({1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(mean.value, 3);
  EXPECT_NEAR(mean.high - mean.value, 2.776 * 1.5811 / 2.2361, 0.001);
  const Estimate part = EstimatePart(99, 100);
  EXPECT_NEAR(part.low, 0.9455, 0.001);
  EXPECT_NEAR(part.high, 0.9982, 0.001);
  EXPECT_EQ(EstimatePart(0, 0).value, 0);
}

// Three programs, of which any two work at the same time at some time.
Workload Rotating() {
  Workload workload{.title = "rotating", .length = 3600 * kSecond, .interval = 60 * kSecond};
  for (std::size_t i = 0; i < 3; ++i) {
    Tenant& tenant =
        workload.tenants.emplace_back(Tenant{.name = std::string(1, static_cast<char>('a' + i)), .memory = 30 * kGiB});
    for (Nanos at = 0; at < workload.length; at += workload.interval) {
      const auto phase = static_cast<std::size_t>(at / (600 * kSecond)) % 3;
      tenant.samples.push_back({.at = at, .duty = phase == i ? 0.0F : 0.6F, .memory = 30 * kGiB});
    }
  }
  return workload;
}

TEST(FleetPlan, ProgramsThatMoveBetweenTheGpusOfANodeNeedFewer) {
  PlanQuestion question = Question();
  EXPECT_EQ(PlanOf(Rotating(), question).gpus.size(), 3U);
  question.gpus_per_node = 2;
  const FleetPlan plan = PlanOf(Rotating(), question);
  ASSERT_EQ(plan.gpus.size(), 2U);
  EXPECT_EQ(plan.over, 0);
  EXPECT_EQ(plan.pods_over, 0);
  EXPECT_EQ(plan.gpus[0].binds, "");
  EXPECT_GE(plan.moves, 4U);
  EXPECT_GE(plan.moves_simulated, 4U);
  EXPECT_LE(plan.moves_simulated, 15U);
  for (const Attainment& got : plan.attained) {
    EXPECT_GT(got.speed.value, 0.99);
    EXPECT_LT(got.p99, 60 * kSecond) << "a change is seen, and made up for, within an interval";
  }
  question.gpus_per_node = 1;
  question.gpus = 2;
  const FleetPlan stays = PlanOf(Rotating(), question);
  EXPECT_GT(std::ranges::max(stays.attained, {}, &Attainment::p99).p99, 60 * kSecond);
}

TEST(FleetPlan, WhoHasNoRecordDoesNotMove) {
  PlanQuestion question = Question();
  question.gpus_per_node = 2;
  const auto mix = PlanFleet({.tenants = {SpeedOf("a", 50)}}, question);
  ASSERT_FALSE(mix);
  EXPECT_EQ(mix.error().message, "tenant a has no record of use: what it wants does not change");
  Workload promised = Rotating();
  promised.tenants[1].memory_request = kGiB;
  const auto stays = PlanFleet(promised, question);
  ASSERT_FALSE(stays);
  EXPECT_EQ(stays.error().message, "tenant b has a promise, or several GPUs: it does not move");
  question.policy = PlanPolicy::kMemory;
  EXPECT_EQ(PlanFleet(Rotating(), question).error().message, "programs move between GPUs with policy tessera only");
}

}  // namespace
}  // namespace tessera::plan
