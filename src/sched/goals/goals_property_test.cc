// Properties of Goals that hold for all vGPUs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/testing/same_cases.h"
#include "sched/goals/goals.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

std::optional<Goal> AnyGoal() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return LatencyGoal{*rc::gen::element(50.0, 99.0, 99.99), *rc::gen::inRange<Nanos>(kMs / 10, 500 * kMs)};
    case 1:
      return SpeedGoal{*rc::gen::inRange(1, 101) * 1.0};
    default:
      return std::nullopt;
  }
}

// The server may send anything, in any order.
RC_GTEST_PROP(GoalsProperty, TermsAreAlwaysValidAndFit, ()) {
  Goals goals;
  std::map<VgpuId, Shares> configured;
  std::map<VgpuId, Shares> in_force;
  std::map<VgpuId, bool> has_goal;
  Nanos now = 0;
  const auto obey = [&] {
    for (const Terms& terms : goals.TakeTerms()) {
      RC_ASSERT(in_force.contains(terms.vgpu));
      Shares& shares = in_force.at(terms.vgpu);
      shares.priority = terms.priority;
      shares.request_pct = terms.request_pct;
      RC_ASSERT(Validate(shares));
      RC_ASSERT(!terms.patience || (*terms.patience >= 0 && *terms.patience <= kSecond));
    }
    // Goals never gives terms that Steering would refuse.
    double sum = 0;
    for (const auto& [_, shares] : in_force) sum += shares.request_pct;
    RC_ASSERT(sum <= 100 + 1e-6);
    for (const Verdict& verdict : goals.TakeVerdicts()) {
      RC_ASSERT(has_goal[verdict.vgpu]);
      RC_ASSERT(verdict.why.empty() ==
                (verdict.kind == Verdict::Kind::kKept || verdict.kind == Verdict::Kind::kUnknown));
    }
    if (const auto audited = goals.audited()) RC_ASSERT(has_goal[*audited]);
    RC_ASSERT(goals.NextDeadline() > now);
  };
  const int events = *rc::gen::inRange(0, 600);
  for (int i = 0; i < events; ++i) {
    const auto id = *rc::gen::inRange<VgpuId>(0, 5);
    const auto submissions = *rc::gen::inRange<std::uint64_t>(0, 5000);
    const Nanos stamp = *rc::gen::element<Nanos>(0, now - kMs, now, now + kSecond, -1, kNever, INT64_MIN);
    switch (*rc::gen::inRange(0, 12)) {
      case 0: {
        const Shares shares = {.request_pct = *rc::gen::inRange(0, 60) * 1.0,
                               .limit_pct = *rc::gen::inRange(20, 101) * 1.0,
                               .priority = *rc::gen::inRange(0u, 17u)};
        // As the daemon: what Steering refuses, Goals are not asked.
        double others = 0;
        for (const auto& [other, its] : configured) others += other == id ? 0 : its.request_pct;
        if (others + shares.request_pct > 100) break;
        const auto goal = AnyGoal();
        if (!goals.Set(id, shares, goal, now)) break;
        in_force[id] = configured[id] = shares;
        has_goal[id] = goal.has_value();
        break;
      }
      case 1:
        goals.Remove(id, now);
        in_force.erase(id);
        configured.erase(id);
        has_goal[id] = false;
        break;
      case 2:
      case 3:
      case 4:
        goals.Began(id, now);
        break;
      case 5:
      case 6:
      case 7:
        goals.Ended(id, stamp, submissions, now);
        break;
      case 8:
        goals.Progress(id, submissions, now);
        break;
      case 9:
        goals.Advance(now);
        break;
      default: {
        const Nanos until = now + *rc::gen::inRange<Nanos>(0, kSecond);
        while (goals.NextDeadline() <= until) {
          now = goals.NextDeadline();
          goals.Advance(now);
          obey();
        }
        now = until;
      }
    }
    obey();
  }
}

}  // namespace
}  // namespace tessera::sched
