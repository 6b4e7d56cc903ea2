// Properties of Steering that hold for all vGPUs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "base/testing/same_cases.h"
#include "sched/steering/steering.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }

// The server may send anything, in any order, with any timestamp.
RC_GTEST_PROP(SteeringProperty, SurvivesAnyEvents, ()) {
  SteeringConfig config;
  config.min_share_pct = *rc::gen::element(0, 10);
  config.fixed_slices = *rc::gen::inRange(0, 4) == 0;
  Steering steering(config);
  Nanos now = 0;
  struct Known {
    bool active = false, stopped = false;
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
      // The highest class runs, and without min_share nobody below who runs.
      if (config.fixed_slices) RC_ASSERT(vgpu.limited || !vgpu.stopped);
      if (config.fixed_slices || config.min_share_pct > 0 || !vgpu.active || vgpu.stopped) continue;
      for (const auto& [_, other] : known) {
        if (other.active && !other.limited) RC_ASSERT(vgpu.priority <= other.priority);
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
        steering.Ungated(id, i % 3 == 0);
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

// However many classes there are, and whatever comes and goes: the slices below a vGPU that has work sum up to its
// patience, and nothing runs below a strict one.
RC_GTEST_PROP(SteeringProperty, PatienceIsKept, ()) {
  Steering steering{SteeringConfig{}};
  Nanos now = 0;
  struct Known {
    Shares shares;
    bool active = false, stopped = false;
  };
  std::map<VgpuId, Known> known;
  int slices = 0;
  int stops = 0;
  const auto take = [&] {
    for (const Order& order : steering.TakeOrders()) {
      if (order.kind == Order::Kind::kStop || order.kind == Order::Kind::kGo)
        known.at(order.vgpu).stopped = order.kind == Order::Kind::kStop;
      slices += order.kind == Order::Kind::kSlice ? 1 : 0;
      stops += order.kind == Order::Kind::kStop ? 1 : 0;
    }
    for (const auto& [_, upper] : known) {
      if (!upper.active) continue;
      Nanos sum = 0;
      for (const auto& [id, lower] : known) {
        if (lower.active && !lower.stopped && lower.shares.priority > upper.shares.priority)
          sum += steering.SliceOf(id);
      }
      RC_ASSERT(sum <= (upper.shares.patience > 0 ? std::max(upper.shares.patience, 50 * kMicrosecond) : 0));
    }
  };
  const auto any_shares = [] {
    return Shares{.weight = *rc::gen::inRange(1u, 1000u),
                  .priority = *rc::gen::inRange(0u, 4u),
                  .patience = *rc::gen::element(0, 20, 50, 100, 100, 500, 3000, 10'000) * kMicrosecond};
  };
  for (VgpuId id = 0; id < 6; ++id) {
    known[id].shares = any_shares();
    RC_ASSERT(steering.Add(id, known[id].shares, now));
    take();
  }
  const int events = *rc::gen::inRange(0, 500);
  for (int i = 0; i < events; ++i) {
    const auto id = *rc::gen::inRange<VgpuId>(0, 6);
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        known[id].shares = any_shares();
        RC_ASSERT(steering.Update(id, known[id].shares, now));
        break;
      case 1:
      case 2:
        known[id].active = false;
        steering.Idle(id, now, now);
        break;
      case 3:
      case 4:
      case 5:
        known[id].active = true;
        steering.Active(id, now);
        break;
      default:
        now = std::min(steering.NextDeadline(), now + Duration(0, 2 * kSecond));
        steering.Advance(now);
        break;
    }
    take();
  }
  // Where nothing changes, slices settle, and somebody runs of the best class and, if that gives way, of the next one.
  const auto settle = [&](Nanos duration) {
    slices = stops = 0;
    for (const Nanos end = now + duration; steering.NextDeadline() <= end;) {
      steering.Advance(now = steering.NextDeadline());
      take();
    }
  };
  settle(5 * kSecond);
  settle(10 * kSecond);
  RC_ASSERT(slices == 0);
  RC_ASSERT(stops <= 50);
  std::map<std::uint32_t, std::pair<int, Nanos>> classes;  // those that run, the least patience
  for (const auto& [_, vgpu] : known) {
    if (!vgpu.active) continue;
    auto& [runs, patience] = classes.try_emplace(vgpu.shares.priority, 0, kNever).first->second;
    runs += vgpu.stopped ? 0 : 1;
    patience = std::min(patience, vgpu.shares.patience);
  }
  if (classes.empty()) return;
  RC_ASSERT(classes.begin()->second.first > 0);
  if (classes.size() > 1 && classes.begin()->second.second > 0) RC_ASSERT(std::next(classes.begin())->second.first > 0);
}

}  // namespace
}  // namespace tessera::sched
