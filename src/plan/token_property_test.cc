// Properties that hold for all vGPUs, programs and clients. The cases are the same on every run; RC_PARAMS="seed=..."
// or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "base/testing/same_cases.h"
#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;
Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }
double Pct(int least, int most) { return *rc::gen::inRange(least, most + 1); }

GpuSpec AnyGpu() {
  return {.time_by = TimeBy::kTokens,
          .token_costs = {
              .hand_over = Duration(0, kMs / 2), .idle_grace = Duration(0, kMs / 2), .lateness = Duration(0, kMs / 2)}};
}

std::uint64_t AnySeed() { return *rc::gen::inRange<std::uint64_t>(1, 1'000'000); }

Program AnyProgram() {
  Program program;
  if (*rc::gen::inRange(0, 2) == 0) {
    const Nanos gap = Duration(50 * kMicrosecond, 300 * kMs);
    program = Bursts(Duration(50 * kMicrosecond, 100 * kMs), Span::Between(gap / 2, gap / 2 + gap));
  }
  program.start = Span::Exactly(Duration(0, kSecond));
  program.in_flight = Duration(0, 20 * kMs);
  return program;
}

// Several vGPUs whose requests fit.
std::vector<sched::Shares> AnyShares(int most) {
  std::vector<sched::Shares> all(static_cast<std::size_t>(*rc::gen::inRange(1, most + 1)));
  int left = 100;
  for (sched::Shares& shares : all) {
    const int request = *rc::gen::inRange(0, left + 1) * *rc::gen::inRange(0, 2);
    left -= request;
    shares.request_pct = request;
    shares.limit_pct = *rc::gen::inRange(0, 2) == 0 ? 100 : Pct(std::max(request, 1), 100);
    shares.weight = *rc::gen::inRange(1u, 1001u);
  }
  return all;
}

void RequireLawful(const OneGpu& gpu) {
  if (!gpu.violations().empty()) RC_FAIL(gpu.violations().front());
}

RC_GTEST_PROP(TokenProperty, LimitsHoldAndDecisionsAreFew, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  const auto all = AnyShares(6);
  for (std::size_t i = 0; i < all.size(); ++i) gpu.Add(static_cast<OneGpu::Id>(i), all[i], AnyProgram());
  gpu.StartMeasuring();
  constexpr Nanos kTime = 20 * kSecond;
  gpu.Run(kTime);
  RequireLawful(gpu);
  double sum = 0;
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    const double billed = gpu.BilledPct(id);
    RC_ASSERT(billed >= 0);
    // Two windows' quota saved while it waited, and one overrun.
    const double slack_ms = 2 * std::max(all[id].limit_pct, 2.0) + 21;
    RC_ASSERT(billed <= all[id].limit_pct + 100 * slack_ms * kMs / kTime);
    sum += billed;
  }
  RC_ASSERT(sum <= 100.001);
  // Bursts of 0.05 ms make at most 10,000 wishes a second; busy programs alone make at most one token per 2 ms.
  RC_ASSERT(gpu.PerSecond(&GpuFigures::decisions) < 21'000);
}

RC_GTEST_PROP(TokenProperty, ABusyVgpuAloneGetsItsLimit, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  const double limit = Pct(5, 95);
  gpu.Add(0, {.limit_pct = limit}, {.in_flight = Duration(0, 20 * kMs)});
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(60 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(std::abs(gpu.BilledPct(0) - limit) < 0.5);
  RC_ASSERT(gpu.PerSecond(&GpuFigures::decisions) < 100);
}

// The part that each busy vGPU is due: request + level * weight. The level is as high as the limits and the GPU's time
// permit.
std::vector<double> Due(const std::vector<sched::Shares>& all) {
  std::vector<double> due(all.size());
  double low = 0;
  double high = 100;
  for (int step = 0; step < 100; ++step) {
    const double level = (low + high) / 2;
    double sum = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      due[i] = std::min(all[i].limit_pct, all[i].request_pct + level * all[i].weight);
      sum += due[i];
    }
    (sum > 100 ? high : low) = level;
  }
  return due;
}

void RunBusy(OneGpu& gpu, const std::vector<sched::Shares>& all) {
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    gpu.Add(id, all[id], {.in_flight = Duration(0, 5 * kMs), .sync = Duration(0, kMs / 2)});
  }
  gpu.Run(10 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(60 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(gpu.PerSecond(&GpuFigures::decisions) < 500);
}

RC_GTEST_PROP(TokenProperty, BusyVgpusGetTheirRequestsAndWeights, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  auto all = AnyShares(5);
  for (sched::Shares& shares : all) shares.limit_pct = 100;
  RunBusy(gpu, all);
  const auto due = Due(all);
  for (OneGpu::Id id = 0; id < all.size(); ++id) RC_ASSERT(std::abs(gpu.BilledPct(id) - due[id]) < 0.5);
}

// With limits 2 in 10,000 cases are off by more than a point: a vGPU whose limit is below its share by weight, and that
// waits for longer than a window between the tokens of others.
RC_GTEST_PROP(TokenProperty, BusyVgpusGetTheirRequestsAndWeightsWithinLimits, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  const auto all = AnyShares(5);
  RunBusy(gpu, all);
  const auto due = Due(all);
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    RC_ASSERT(std::abs(gpu.BilledPct(id) - due[id]) < 2);
    RC_ASSERT(gpu.BilledPct(id) < all[id].limit_pct + 0.3);
  }
}

RC_GTEST_PROP(TokenProperty, NoWindowHoldsMuchMoreThanTheLimit, ()) {
  GpuSpec spec = AnyGpu();
  spec.token_costs.lateness = 0;
  OneGpu gpu(spec, AnySeed());
  const double limit = Pct(5, 95);
  Program program = AnyProgram();
  program.in_flight = 0;
  gpu.Add(0, {.limit_pct = limit}, program);
  const double slack = std::min(std::max(limit / 4, 2.0), (100 - limit) / 2);
  for (int i = 0; i < 1000; ++i) {
    gpu.Run(3 * kMs);
    RC_ASSERT(gpu.Of(0).window_pct <= limit + slack + 2);  // 2: the log merges what began within 1/64 of the window
  }
  RequireLawful(gpu);
}

}  // namespace
}  // namespace tessera::plan
