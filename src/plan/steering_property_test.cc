// Properties of a steered GPU that hold for all vGPUs, programs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "base/testing/same_cases.h"
#include "plan/testing/one_gpu.h"
#include "sched/steering/slices.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;
Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }

GpuSpec AnyGpu() {
  return {.steering_costs = {.switch_cost = Duration(100 * kMicrosecond, 180 * kMicrosecond),
                             .message = Duration(0, 200 * kMicrosecond),
                             .lateness = Duration(0, 100 * kMicrosecond)}};
}

std::uint64_t AnySeed() { return *rc::gen::inRange<std::uint64_t>(1, 1'000'000); }

Program AnyProgram() {
  Program program{.start = Span::Between(0, kSecond)};
  Phase& phase = program.phases.front();
  if (*rc::gen::inRange(0, 3) == 0) return program;
  phase.burst = Duration(100 * kMicrosecond, 100 * kMs);
  phase.gap = Span::About(Duration(100 * kMicrosecond, 200 * kMs));
  if (*rc::gen::inRange(0, 2) == 0) return program;
  phase.step = Duration(100 * kMicrosecond, 10 * kMs);
  phase.pause = Span::Between(0, Duration(0, 8 * kMs));
  return program;
}

// Several vGPUs whose requests fit.
std::vector<sched::Shares> AnyShares(int least, int most) {
  std::vector<sched::Shares> all(static_cast<std::size_t>(*rc::gen::inRange(least, most + 1)));
  int left = 100;
  for (sched::Shares& shares : all) {
    const int request = *rc::gen::inRange(0, left + 1) * *rc::gen::inRange(0, 2);
    left -= request;
    shares.request_pct = request;
    shares.limit_pct = *rc::gen::inRange(0, 2) == 0 ? 100 : *rc::gen::inRange(std::max(request, 1), 101);
    shares.weight = *rc::gen::inRange(1u, 1001u);
    shares.priority = *rc::gen::inRange(0u, 16u);
  }
  return all;
}

void RequireLawful(const OneGpu& gpu) {
  if (!gpu.violations().empty()) RC_FAIL(gpu.violations().front());
}

// Runs for some seconds, and looks at calls and limits.
void RequireFewCallsAndLimits(OneGpu& gpu, const std::vector<sched::Shares>& all) {
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  constexpr Nanos kTime = 10 * kSecond;
  gpu.Run(kTime);
  RequireLawful(gpu);
  RC_ASSERT(gpu.PerSecond(&GpuFigures::calls) <= 100);
  RC_ASSERT(gpu.OfGpu().most_calls <= 100 + static_cast<int>(all.size()));
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    // Two windows' quota saved while it waited, and a freeze.
    const double slack_ms = 2 * std::max(all[id].limit_pct, 2.0) + 1;
    RC_ASSERT(gpu.BilledPct(id) <= all[id].limit_pct + 0.5 + 100 * slack_ms * kMs / kTime);
  }
}

// No order twice, no deadline in the past, time goes on (the simulator looks), few calls, and limits.
RC_GTEST_PROP(SteeredProperty, CallsAreFewAndLimitsHold, ()) {
  GpuSpec spec = AnyGpu();
  spec.steering.min_share_pct = *rc::gen::element(0, 0, 5, 20);
  spec.steering.fixed_slices = *rc::gen::inRange(0, 8) == 0;
  OneGpu gpu(spec, AnySeed());
  const auto all = AnyShares(1, 16);
  for (OneGpu::Id id = 0; id < all.size(); ++id) gpu.Add(id, all[id], AnyProgram());
  RequireFewCallsAndLimits(gpu, all);
  double sum = 0;
  for (OneGpu::Id id = 0; id < all.size(); ++id) sum += gpu.ExecutedPct(id);
  RC_ASSERT(sum <= 100.001);
}

RC_GTEST_PROP(SteeredProperty, CallsAreFewAndLimitsHoldWhereClassesGiveWay, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  auto all = AnyShares(1, 8);
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    all[id].priority /= 4;
    all[id].patience = *rc::gen::element(0, 50, 100, 100, 1000, 5000) * kMicrosecond;
    gpu.Add(id, all[id], AnyProgram());
  }
  RequireFewCallsAndLimits(gpu, all);
}

RC_GTEST_PROP(SteeredProperty, ABusyVgpuAloneGetsItsLimit, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  const double limit = *rc::gen::inRange(2, 99);
  gpu.Add(0, {.limit_pct = limit});
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(std::abs(gpu.ExecutedPct(0) - limit) < 0.5);
  RC_ASSERT(gpu.PerSecond(&GpuFigures::calls) <= 21);
}

RC_GTEST_PROP(SteeredProperty, BusyVgpusOfAClassGetWhatTheyAreDue, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  auto all = AnyShares(2, 8);
  for (sched::Shares& shares : all) {
    shares.limit_pct = 100;
    shares.priority = 8;
    shares.weight = 10 + shares.weight / 10;
  }
  for (OneGpu::Id id = 0; id < all.size(); ++id) gpu.Add(id, all[id]);
  gpu.Run(kSecond / 2);
  gpu.StartMeasuring();
  gpu.Run(60 * kSecond);
  RequireLawful(gpu);
  const auto due = sched::DueParts(all);
  double sum = 0;
  for (OneGpu::Id id = 0; id < all.size(); ++id) sum += gpu.ExecutedPct(id);
  RC_ASSERT(sum >= 97.9);
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    // A slice is never below the least, so who is due next to nothing gets 0.5 % of a GPU.
    RC_ASSERT(std::abs(gpu.ExecutedPct(id) / sum - due[id]) <= 0.02 * due[id] + 0.006);
  }
}

RC_GTEST_PROP(SteeredProperty, NobodyBusyStarvesBesideItsOwnClass, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  auto all = AnyShares(2, 8);
  for (OneGpu::Id id = 0; id < all.size(); ++id) {
    sched::Shares& shares = all[id];
    shares = {.weight = shares.weight, .priority = 8};
    gpu.Add(id, shares, id == 0 ? Program{} : AnyProgram());
  }
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(gpu.ExecutedPct(0) >= 100 * 0.85 * sched::DueParts(all)[0]);
}

RC_GTEST_PROP(SteeredProperty, AHigherClassDoesNotFeelTheLower, ()) {
  OneGpu gpu(AnyGpu(), AnySeed());
  const Program higher = {.phases = {{.burst = Duration(30 * kMs, 300 * kMs),
                                      .gap = Span::About(Duration(kMs, 300 * kMs)),
                                      .step = Duration(5 * kMs, 50 * kMs),
                                      .pause = Span::Between(0, Duration(0, 5 * kMs))}}};
  gpu.Add(0, {.priority = 2}, higher);
  const auto lower = *rc::gen::inRange<OneGpu::Id>(1, 7);
  for (OneGpu::Id id = 1; id <= lower; ++id) gpu.Add(id, {.priority = *rc::gen::inRange(3u, 16u)});
  gpu.Run(5 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(gpu.ExecutedPct(0) >= 0.97 * gpu.Of(0).HadWorkPct());
}

}  // namespace
}  // namespace tessera::plan
