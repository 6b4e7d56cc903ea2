// Properties that hold for all vGPUs and clients. The cases are the same on every run; RC_PARAMS="seed=..."
// or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <set>

#include "sched/tokens/token_scheduler.h"

namespace tessera::sched {
namespace {

constexpr Nanos kMs = kMillisecond;
[[maybe_unused]] const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1", 0);

Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }
double Pct(int least, int most) { return *rc::gen::inRange(least, most + 1); }

// Clients send anything, in any order, with any timestamp.
RC_GTEST_PROP(SchedulerProperty, SurvivesAnyEvents, ()) {
  TokenScheduler scheduler;
  const Config config;
  Nanos now = 0;
  std::set<VgpuId> present;
  std::optional<VgpuId> holder;
  Nanos revoked = kNever;
  const auto obey = [&] {
    for (const Decision& decision : scheduler.TakeDecisions()) {
      if (decision.kind == Decision::Kind::kRevoke) {
        RC_ASSERT(holder == decision.vgpu);
        RC_ASSERT(revoked == kNever);
        revoked = now;
      } else {
        const bool free = !holder || (revoked != kNever && now >= revoked + config.drain_timeout);
        RC_ASSERT(free || (holder == decision.vgpu && revoked == kNever));
        RC_ASSERT(decision.expires > now);
        RC_ASSERT(decision.bounded == (decision.expires != kNever));
        holder = decision.vgpu;
        revoked = kNever;
      }
    }
    RC_ASSERT(scheduler.NextDeadline() >= now);
  };
  const auto frees = [&](VgpuId id, bool released) {
    if (holder == id && (!released || revoked != kNever)) holder.reset();
  };
  const int events = *rc::gen::inRange(0, 2000);
  for (int i = 0; i < events; ++i) {
    const auto id = *rc::gen::inRange<VgpuId>(0, 6);
    const auto shares = [] { return Shares{Pct(0, 40), Pct(1, 100), *rc::gen::inRange(1u, 1000u)}; };
    const Nanos stamp = *rc::gen::element<Nanos>(0, now - kMs, now, now + kSecond, -1, kNever, INT64_MIN);
    switch (*rc::gen::inRange(0, 16)) {
      case 0:
        if (scheduler.Add(id, shares())) RC_ASSERT(present.insert(id).second);
        break;
      case 1:
        if (scheduler.Update(id, shares(), now)) RC_ASSERT(present.contains(id));
        break;
      case 2:
        present.erase(id);
        frees(id, false);
        scheduler.Remove(id, now);
        break;
      case 3:
      case 4:
        frees(id, false);
        scheduler.Idle(id, now, stamp);
        break;
      case 5:
      case 6:
      case 7:
        frees(id, true);
        scheduler.Released(id, now, stamp);
        break;
      case 8:
      case 9:
      case 10:
      case 11:
        scheduler.Wants(id, now);
        break;
      case 12:
        scheduler.Wants(id, now - kSecond);
        break;
      case 13:
        now += Duration(0, 30 * kMs);
        scheduler.Advance(now);
        break;
      default:
        now = std::min(scheduler.NextDeadline(), now + 200 * kMs);
        scheduler.Advance(now);
        break;
    }
    obey();
  }
  Nanos busy = 0;
  for (VgpuId id = 0; id < 6; ++id) {
    const Usage usage = scheduler.UsageOf(id, now);
    RC_ASSERT(usage.busy >= 0);
    RC_ASSERT(usage.waited >= 0);
    RC_ASSERT(usage.window_pct >= 0 && usage.window_pct <= 100.001);
    busy += usage.busy;
  }
  RC_ASSERT(busy <= now + 10);
}

}  // namespace
}  // namespace tessera::sched
