// Properties of Residency that hold for all vGPUs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/testing/same_cases.h"
#include "sched/testing/any_number.h"
#include "sched/testing/milliseconds.h"
#include "sched/turns/residency.h"

namespace tessera::sched {
namespace {

using Mode = Residency::Mode;

constexpr VgpuId kUnknown = 77;

constexpr auto Duration = Number<Nanos>;
constexpr auto Bytes = Number<std::uint64_t>;

// A state of the vGPUs, and two policies that were told the same.
struct World {
  struct Vgpu {
    std::uint64_t demand = 0, holes = 0, resident = 0;
    std::uint32_t priority = 0;
    bool active = false;
    ResidencyDecision decided;
  };
  explicit World(ResidencyConfig config) : policy(config), twin(config), graces(config.grace > 0) {}

  template <typename Event>
  void Tell(Event event) {
    event(policy);
    event(twin);
  }

  Residency policy;
  Residency twin;
  const bool graces;  // who said that it is idle may count as active
  std::map<VgpuId, Vgpu> known;
  std::uint64_t capacity = 0;
  Nanos now = 0;
};

void CheckTargets(const World& world) {
  std::uint64_t left = world.capacity;
  std::uint64_t left_by_those_that_run = world.capacity, left_with_holes = world.capacity;
  bool lacks_holes = false;
  bool any_active = false;
  bool any_runs = false;
  std::uint32_t top = UINT32_MAX;
  for (const auto& [id, vgpu] : world.known) {
    const ResidencyDecision& decision = vgpu.decided;
    RC_ASSERT(decision.target <= left);
    left -= decision.target;
    if (world.graces) continue;
    if (!vgpu.active) {
      RC_ASSERT(decision.runs && decision.target - std::min(decision.target, vgpu.holes) <= vgpu.resident);
      continue;
    }
    any_active = true;
    any_runs |= decision.runs;
    top = std::min(top, vgpu.priority);
    if (world.policy.CurrentMode() == Mode::kTogether) RC_ASSERT(decision.runs && decision.target >= vgpu.demand);
    if (decision.runs) {
      const std::uint64_t needed = std::min(vgpu.demand, world.capacity);
      RC_ASSERT(decision.target >= needed && decision.target - needed <= vgpu.holes);
      lacks_holes |= needed < vgpu.demand || decision.target - needed < vgpu.holes;
      left_by_those_that_run -= needed;
      left_with_holes -= decision.target;
    } else {
      RC_ASSERT(decision.target <= vgpu.resident);
    }
  }
  if (world.graces) return;
  // Those that run have whole chunks before others keep anything.
  RC_ASSERT(!lacks_holes || left_with_holes == 0);
  RC_ASSERT(any_runs == any_active);
  bool top_runs = !any_active;
  for (const auto& [id, vgpu] : world.known) {
    if (!vgpu.active) continue;
    const bool runs = vgpu.decided.runs;
    if (!runs) RC_ASSERT(vgpu.demand > left_by_those_that_run);
    top_runs |= runs && vgpu.priority == top;
  }
  RC_ASSERT(top_runs);
}

// Both observe the world. Returns whether a decision changed.
bool Observe(World& world, Nanos now) {
  std::vector<ResidencyFacts> facts = {{.vgpu = kUnknown, .demand = 1, .active = true}};
  for (const auto& [id, vgpu] : world.known) facts.push_back({id, vgpu.demand, vgpu.holes, vgpu.resident, vgpu.active});
  const auto decisions = world.policy.Observe(facts, world.capacity, now);
  RC_ASSERT(std::ranges::equal(decisions, world.twin.Observe(facts, world.capacity, now)));
  RC_ASSERT(world.policy.NextDeadline() == world.twin.NextDeadline());
  RC_ASSERT(decisions.size() == facts.size());
  RC_ASSERT(decisions[0] == (ResidencyDecision{.vgpu = kUnknown, .target = 0, .runs = false}));
  bool changed = false;
  for (const ResidencyDecision& decision : decisions.subspan(1)) {
    RC_ASSERT(world.known.contains(decision.vgpu));
    changed |= std::exchange(world.known[decision.vgpu].decided, decision) != decision;
  }
  return changed;
}

void AnyEvent(World& world) {
  const auto id = Number<VgpuId>(0, 5);
  const Nanos now = world.now;
  const auto vgpu = world.known.find(id);
  const bool known = vgpu != world.known.end();
  const auto bytes = [&] {
    return *rc::gen::element<std::uint64_t>(0, 1, Bytes(0, 60), Bytes(0, 25), world.capacity, 1ull << 63);
  };
  switch (Number(0, 14)) {
    case 0:
    case 1: {
      const auto weight = Number(0u, 999u);
      const auto priority = Number(6u, 8u);
      if (!known) {
        world.known[id] = {.priority = priority};
        world.known[id].decided.vgpu = id;
      }
      return world.Tell([&](Residency& policy) { policy.Add(id, weight, priority, now); });
    }
    case 2: {
      const auto weight = Number(0u, 999u);
      const auto priority = Number(6u, 8u);
      if (known) vgpu->second.priority = priority;
      return world.Tell([&](Residency& policy) { policy.Update(id, weight, priority, now); });
    }
    case 3:
      world.known.erase(id);
      return world.Tell([&](Residency& policy) { policy.Remove(id, now); });
    case 4:
    case 5:
    case 6:
      if (known) vgpu->second.demand = bytes();
      return;
    case 7:
      if (known) vgpu->second.resident = bytes();
      if (known) vgpu->second.holes = Bytes(0, 9);
      return;
    case 8:
    case 9:
    case 10:
      if (known) vgpu->second.active = true;
      return;
    case 11:
      if (known) vgpu->second.active = false;
      return;
    case 12:
    case 13: {
      const Nanos moving = *rc::gen::element<Nanos>(0, Duration(0, kSecond), -1, kNever, INT64_MIN);
      return world.Tell([&](Residency& policy) { policy.Ready(id, now, moving); });
    }
    default:
      world.capacity = *rc::gen::element<std::uint64_t>(0, 40, Bytes(1, 100), UINT64_MAX);
      return;
  }
}

ResidencyConfig AnyConfig() {
  return {.turn_min = Duration(0, kSecond),
          .turn_max = Duration(0, 30 * kSecond),
          .most_moving = *rc::gen::element(0.0, 0.01, 0.1, 0.5, 1.0),
          .comfort = *rc::gen::element(0.0, 0.5, 0.95, 1.0),
          .settle = Duration(0, 2 * kSecond),
          .grace = *rc::gen::element<Nanos>(0, 0, 100 * kMs)};
}

// Without events nothing changes but at deadlines, and there only who runs in turns.
void CheckTheFuture(World& world) {
  for (int i = 0; i < 5 && world.policy.NextDeadline() != kNever; ++i) {
    const Nanos deadline = world.policy.NextDeadline();
    RC_ASSERT(deadline > world.now);
    const bool turns = world.policy.CurrentMode() == Mode::kTurns;
    world.now = std::max(world.now, deadline - 1);
    RC_ASSERT(!Observe(world, deadline - 1));
    RC_ASSERT(world.policy.NextDeadline() == deadline);
    world.now = deadline;
    const bool changed = Observe(world, deadline);
    RC_ASSERT(turns || world.graces);
    if (!world.graces && world.policy.CurrentMode() == Mode::kTogether) RC_ASSERT(!changed);
    CheckTargets(world);
  }
}

RC_GTEST_PROP(ResidencyProperty, SurvivesAnyEvents, ()) {
  World world(AnyConfig());
  const int events = Number(0, 299);
  for (int i = 0; i < events; ++i) {
    AnyEvent(world);
    if (Number(0, 3) == 0) continue;  // several at once
    const Nanos now = world.now;
    const Nanos said = *rc::gen::element<Nanos>(now + 0, now + Duration(0, kSecond), now - kSecond, INT64_MIN);
    world.now = std::max(now, said);
    Observe(world, said);
    CheckTargets(world);
    RC_ASSERT(world.policy.NextDeadline() > world.now);
    RC_ASSERT(!Observe(world, said));
    if (Number(0, 19) == 0) CheckTheFuture(world);
  }
  Observe(world, world.now);
  RC_ASSERT(!Observe(world, world.now));
}

}  // namespace
}  // namespace tessera::sched
