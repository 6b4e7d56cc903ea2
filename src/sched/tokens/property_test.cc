// Properties that hold for all vGPUs and clients. The cases are the same on every run; RC_PARAMS="seed=..."
// or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "base/testing/same_cases.h"
#include "sched/testing/milliseconds.h"
#include "sched/tokens/token_scheduler.h"

namespace tessera::sched {
namespace {

Nanos Duration(Nanos least, Nanos most) { return *rc::gen::inRange(least, most + 1); }
double Pct(int least, int most) { return *rc::gen::inRange(least, most + 1); }

// The token as clients see it: who holds it, and since when a holder is revoked.
class Holders {
 public:
  void Obey(const std::vector<Decision>& decisions, const std::map<VgpuId, SpacePlace>& places, Nanos now) {
    for (const Decision& decision : decisions) {
      if (decision.kind == Decision::Kind::kRevoke) {
        RC_ASSERT(Holds(decision.vgpu));
        revoked_since_.at(decision.vgpu) = now;
      } else {
        RC_ASSERT(decision.expires > now);
        RC_ASSERT(decision.bounded == (decision.expires != kNever));
        revoked_since_[decision.vgpu] = kNever;
      }
    }
    const auto has_left = [&](const auto& entry) {  // drained, or a straggler
      return entry.second != kNever && now >= entry.second + Config{}.drain_timeout;
    };
    std::erase_if(revoked_since_, has_left);
    double sms = 0;
    for (const auto& [id, _] : revoked_since_) {
      const SpacePlace& place = places.at(id);
      const SpacePlace& first = places.at(revoked_since_.begin()->first);
      RC_ASSERT(revoked_since_.size() == 1 || (place.number != 0 && place.number == first.number));
      sms += place.taken_pct();
    }
    RC_ASSERT(sms <= 100.001);
  }

  bool Holds(VgpuId id) const { return revoked_since_.contains(id) && revoked_since_.at(id) == kNever; }
  bool Has(VgpuId id) const { return revoked_since_.contains(id); }
  void Remove(VgpuId id) { revoked_since_.erase(id); }

 private:
  std::map<VgpuId, Nanos> revoked_since_;  // kNever: it holds the token
};

// Clients send anything, in any order, with any timestamp.
void SurviveAnyEvents(bool spaces) {
  TokenScheduler scheduler;
  Nanos now = 0;
  std::map<VgpuId, SpacePlace> present;
  Holders holders;
  const auto obey = [&] {
    holders.Obey(scheduler.TakeDecisions(), present, now);
    RC_ASSERT(scheduler.NextDeadline() >= now);
  };
  const int events = *rc::gen::inRange(0, 2000);
  for (int i = 0; i < events; ++i) {
    const auto id = *rc::gen::inRange<VgpuId>(0, 6);
    Shares shares{Pct(0, 40), Pct(1, 100), *rc::gen::inRange(1u, 1000u)};
    if (spaces) shares.space.number = *rc::gen::inRange<std::uint32_t>(0, 3);
    if (shares.space.number != 0) shares.space.sm_pct = Pct(1, 100);
    if (shares.space.number != 0) shares.space.in_turns = *rc::gen::arbitrary<bool>();
    const Nanos stamp = *rc::gen::element<Nanos>(0, now - kMs, now, now + kSecond, -1, kNever, INT64_MIN);
    switch (*rc::gen::inRange(0, 16)) {
      case 0:
        if (scheduler.Add(id, shares)) RC_ASSERT(present.emplace(id, shares.space).second);
        break;
      case 1:
        // A member that moves to other SMs gives the token back first.
        if (holders.Has(id) && !(present.at(id) == shares.space)) break;
        if (scheduler.Update(id, shares, now)) {
          RC_ASSERT(present.contains(id));
          present.at(id) = shares.space;
        }
        break;
      case 2:
        present.erase(id);
        holders.Remove(id);
        scheduler.Remove(id, now);
        break;
      case 3:
      case 4:
        holders.Remove(id);
        scheduler.Idle(id, now, stamp);
        break;
      case 5:
      case 6:
      case 7:
        if (!holders.Holds(id)) holders.Remove(id);
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
    RC_ASSERT(usage.busy <= now + 10);
    busy += usage.busy;
  }
  RC_ASSERT(spaces || busy <= now + 10);
}

RC_GTEST_PROP(SchedulerProperty, SurvivesAnyEvents, ()) { SurviveAnyEvents(false); }
RC_GTEST_PROP(SchedulerProperty, SurvivesAnyEventsWithSpaces, ()) { SurviveAnyEvents(true); }

}  // namespace
}  // namespace tessera::sched
