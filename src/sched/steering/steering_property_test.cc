// Properties of Steering that hold for all vGPUs, programs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <set>

#include "sched/steering/slices.h"
#include "sched/steering_simulator.h"

namespace tessera::sched {
namespace {

constexpr Nanos kMs = kMillisecond;
[[maybe_unused]] const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1", 0);

Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }

SteeredGpu AnyGpu() {
  return {.switch_cost = Duration(100 * kMicrosecond, 180 * kMicrosecond),
          .message = Duration(0, 200 * kMicrosecond),
          .lateness = Duration(0, 100 * kMicrosecond),
          .seed = *rc::gen::inRange<std::uint64_t>(1, 1'000'000)};
}

Demand AnyDemand() {
  Demand demand{.start = kSecond};
  if (*rc::gen::inRange(0, 3) == 0) return demand;
  demand.burst = Duration(100 * kMicrosecond, 100 * kMs);
  demand.gap = Duration(100 * kMicrosecond, 200 * kMs);
  if (*rc::gen::inRange(0, 2) == 0) return demand;
  demand.step = Duration(100 * kMicrosecond, 10 * kMs);
  demand.most_pause = Duration(0, 8 * kMs);
  return demand;
}

// Several vGPUs whose requests fit.
std::vector<Shares> AnyShares(int least, int most) {
  std::vector<Shares> all(static_cast<std::size_t>(*rc::gen::inRange(least, most + 1)));
  int left = 100;
  for (Shares& shares : all) {
    const int request = *rc::gen::inRange(0, left + 1) * *rc::gen::inRange(0, 2);
    left -= request;
    shares.request_pct = request;
    shares.limit_pct = *rc::gen::inRange(0, 2) == 0 ? 100 : *rc::gen::inRange(std::max(request, 1), 101);
    shares.weight = *rc::gen::inRange(1u, 1001u);
    shares.priority = *rc::gen::inRange(0u, 16u);
  }
  return all;
}

void RequireLawful(const SteeringSimulator& gpu) {
  if (!gpu.violations().empty()) RC_FAIL(gpu.violations().front());
}

// No order twice, no deadline in the past, time goes on (the simulator looks), few calls, and limits.
RC_GTEST_PROP(SteeringProperty, CallsAreFewAndLimitsHold, ()) {
  SteeringConfig config;
  config.min_share_pct = *rc::gen::element(0, 0, 5, 20);
  config.fixed_slices = *rc::gen::inRange(0, 8) == 0;
  SteeringSimulator gpu(AnyGpu(), config);
  const auto all = AnyShares(1, 16);
  for (VgpuId id = 0; id < all.size(); ++id) gpu.Add(id, all[id], AnyDemand());
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  constexpr Nanos kTime = 10 * kSecond;
  gpu.Run(kTime);
  RequireLawful(gpu);
  RC_ASSERT(gpu.CallsPerSecond() <= 100);
  RC_ASSERT(gpu.MostCallsInASecond() <= 100 + static_cast<int>(all.size()));
  double sum = 0;
  for (VgpuId id = 0; id < all.size(); ++id) {
    // Two windows' quota saved while it waited, and a freeze.
    const double slack_ms = 2 * std::max(all[id].limit_pct, 2.0) + 1;
    RC_ASSERT(gpu.BilledPct(id) <= all[id].limit_pct + 0.5 + 100 * slack_ms * kMs / kTime);
    sum += gpu.ExecutedPct(id);
  }
  RC_ASSERT(sum <= 100.001);
}

RC_GTEST_PROP(SteeringProperty, ABusyVgpuAloneGetsItsLimit, ()) {
  SteeringSimulator gpu(AnyGpu());
  const double limit = *rc::gen::inRange(2, 99);
  gpu.Add(0, {.limit_pct = limit});
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(std::abs(gpu.ExecutedPct(0) - limit) < 0.5);
  RC_ASSERT(gpu.CallsPerSecond() <= 21);
}

RC_GTEST_PROP(SteeringProperty, BusyVgpusOfAClassGetWhatTheyAreDue, ()) {
  SteeringSimulator gpu(AnyGpu());
  auto all = AnyShares(2, 8);
  for (Shares& shares : all) {
    shares.limit_pct = 100;
    shares.priority = 8;
    shares.weight = 10 + shares.weight / 10;
  }
  for (VgpuId id = 0; id < all.size(); ++id) gpu.Add(id, all[id]);
  gpu.Run(kSecond / 2);
  gpu.StartMeasuring();
  gpu.Run(60 * kSecond);
  RequireLawful(gpu);
  const auto due = DueParts(all);
  double sum = 0;
  for (VgpuId id = 0; id < all.size(); ++id) sum += gpu.ExecutedPct(id);
  RC_ASSERT(sum >= 97.9);
  for (VgpuId id = 0; id < all.size(); ++id) {
    // A slice is never below the least, so who is due next to nothing gets 0.5 % of a GPU.
    RC_ASSERT(std::abs(gpu.ExecutedPct(id) / sum - due[id]) <= 0.02 * due[id] + 0.006);
  }
}

RC_GTEST_PROP(SteeringProperty, NobodyBusyStarvesBesideItsOwnClass, ()) {
  SteeringSimulator gpu(AnyGpu());
  auto all = AnyShares(2, 8);
  for (VgpuId id = 0; id < all.size(); ++id) {
    Shares& shares = all[id];
    shares = {.weight = shares.weight, .priority = 8};
    gpu.Add(id, shares, id == 0 ? Demand{} : AnyDemand());
  }
  gpu.Run(2 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(gpu.ExecutedPct(0) >= 100 * 0.85 * DueParts(all)[0]);
}

RC_GTEST_PROP(SteeringProperty, AHigherClassDoesNotFeelTheLower, ()) {
  SteeringSimulator gpu(AnyGpu());
  const Demand higher = {.burst = Duration(30 * kMs, 300 * kMs),
                         .gap = Duration(kMs, 300 * kMs),
                         .open = false,
                         .step = Duration(5 * kMs, 50 * kMs),
                         .most_pause = Duration(0, 5 * kMs)};
  gpu.Add(0, {.priority = 2}, higher);
  const auto lower = *rc::gen::inRange<VgpuId>(1, 7);
  for (VgpuId id = 1; id <= lower; ++id) gpu.Add(id, {.priority = *rc::gen::inRange(3u, 16u)});
  gpu.Run(5 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  RequireLawful(gpu);
  RC_ASSERT(gpu.ExecutedPct(0) >= 0.97 * gpu.WorkPct(0));
}

// What the server may send: anything, in any order, with any timestamp.
RC_GTEST_PROP(SteeringProperty, SurvivesAnyEvents, ()) {
  SteeringConfig config;
  config.min_share_pct = *rc::gen::element(0, 10);
  config.fixed_slices = *rc::gen::inRange(0, 4) == 0;
  Steering steering(config);
  Nanos now = 0;
  struct Known {
    bool active = false, held = false, stopped = false;
    std::uint32_t priority = 0;
    bool limited = false;
  };
  std::map<VgpuId, Known> known;
  const auto obey = [&] {
    std::set<std::pair<VgpuId, Order::Kind>> seen;
    for (const Order& order : steering.TakeOrders()) {
      RC_ASSERT(known.contains(order.vgpu));
      RC_ASSERT(seen.emplace(order.vgpu, order.kind).second);
      if (order.kind == Order::Kind::kSlice || order.kind == Order::Kind::kGrace) {
        RC_ASSERT(order.time > 0);
        continue;
      }
      const bool stop = order.kind == Order::Kind::kStop;
      RC_ASSERT(known[order.vgpu].stopped != stop);
      known[order.vgpu].stopped = stop;
    }
    RC_ASSERT(steering.NextDeadline() > now);
    for (const auto& [id, vgpu] : known) {
      RC_ASSERT(steering.Stopped(id) == vgpu.stopped);
      RC_ASSERT(steering.Running(id) == (vgpu.active && !vgpu.held && !vgpu.stopped));
      // The highest class runs, and without min_share nobody below who runs.
      if (config.fixed_slices) RC_ASSERT(vgpu.limited || !vgpu.stopped);
      if (config.fixed_slices || config.min_share_pct > 0 || !steering.Running(id)) continue;
      for (const auto& [_, other] : known) {
        if (other.active && !other.held && !other.limited) RC_ASSERT(vgpu.priority <= other.priority);
      }
    }
  };
  const int events = *rc::gen::inRange(0, 1000);
  for (int i = 0; i < events; ++i) {
    const auto id = *rc::gen::inRange<VgpuId>(0, 6);
    const auto shares = [] {
      return Shares{*rc::gen::inRange(0, 40) * 1.0, *rc::gen::inRange(1, 101) * 1.0, *rc::gen::inRange(1u, 1000u),
                    *rc::gen::inRange(0u, 17u)};
    };
    const Nanos stamp = *rc::gen::element<Nanos>(0, now - kMs, now, now + kSecond, -1, kNever, INT64_MIN);
    switch (*rc::gen::inRange(0, 15)) {
      case 0:
      case 1:
        if (const Shares any = shares(); steering.Add(id, any, now)) {
          known[id] = {.priority = any.priority, .limited = any.limit_pct < 100};
        }
        break;
      case 2:
        if (const Shares any = shares(); steering.Update(id, any, now)) {
          known.at(id).priority = any.priority;
          known.at(id).limited = any.limit_pct < 100;
        }
        break;
      case 3:
        known.erase(id);
        steering.Remove(id, now);
        break;
      case 4:
      case 5:
        if (known.contains(id)) known[id].held = i % 2 == 0;
        steering.Ungated(id, i % 3 == 0);
        steering.Hold(id, i % 2 == 0, now);
        break;
      case 6:
      case 7:
        if (known.contains(id)) known[id].active = false;
        steering.Idle(id, now, stamp);
        break;
      case 8:
      case 9:
      case 10:
        if (known.contains(id)) known[id].active = true;
        steering.Active(id, now - *rc::gen::element<Nanos>(0, 0, kSecond));
        break;
      case 11:
        now += Duration(0, 30 * kMs);
        steering.Advance(now);
        break;
      default:
        now = std::min(steering.NextDeadline(), now + 200 * kMs);
        steering.Advance(now);
        break;
    }
    if (*rc::gen::inRange(0, 4) > 0) obey();
  }
  obey();
  for (const auto& [id, _] : known) {
    const Usage usage = steering.UsageOf(id, now);
    RC_ASSERT(usage.busy >= 0 && usage.busy <= now + kMs);
    // The freeze after each stop and the thaw after each go count as waited too, and here time may stand still.
    RC_ASSERT(usage.waited >= 0 && usage.waited <= now + (events + 1) * kMs);
    RC_ASSERT(usage.window_pct >= 0 && usage.window_pct <= 101);
  }
}

}  // namespace
}  // namespace tessera::sched
