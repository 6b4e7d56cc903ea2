// Properties of ResidencyPlanner that hold for all states and histories: the laws of sched/testing/residency_laws.cc,
// the same plan for the same calls, and an end of waiting. The cases are the same on every run; RC_PARAMS="seed=..." or
// "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "sched/testing/any_number.h"
#include "sched/testing/residency_world.h"

namespace tessera::sched {
namespace {

using Kind = ResidencyActionKind;

constexpr auto Bytes = Number<std::uint64_t>;
bool OneIn(int n) { return Number(1, n) == 1; }

void RequireLawful(const std::vector<std::string>& broken) {
  if (!broken.empty()) RC_FAIL(broken.front());
}

// ---- any states ----

constexpr std::uint64_t kChunk = 4;

// Anything that a server could see; what the planner said before need not have become true.
ProcessResidence AnyProcess(ProcessId id, Nanos now) {
  ProcessResidence process{.id = id};
  process.credit = OneIn(3) ? Bytes(0, 20) : 0;
  process.pinned = OneIn(3) ? Bytes(0, 20) : 0;
  process.moving = *rc::gen::element(Moving::kNothing, Moving::kNothing, Moving::kOut, Moving::kIn, Moving::kSettling,
                                     Moving::kParking);
  const bool moves = process.moving == Moving::kOut || process.moving == Moving::kIn;
  process.ordered = moves ? Bytes(0, 8) * kChunk : 0;
  process.done = moves ? Bytes(0, process.ordered) : 0;
  process.room = process.credit + process.pinned + Bytes(0, 60) + (process.moving == Moving::kIn ? process.ordered : 0);
  process.empty = OneIn(4) ? Bytes(0, process.pinned) : 0;
  process.swapped = OneIn(2) ? Bytes(0, 60) : 0;
  if (process.moving == Moving::kIn) process.swapped += process.ordered;
  process.stranded = OneIn(4) ? Bytes(0, 60) : 0;
  process.coming_holes = process.moving == Moving::kIn && OneIn(2) ? Bytes(0, process.ordered) : 0;
  process.holes_out = OneIn(2) ? Bytes(0, process.swapped) : 0;
  process.blank = OneIn(3) ? Bytes(0, 60) : 0;
  process.hot_out = OneIn(3) ? Bytes(0, process.swapped) : 0;
  process.recalled = OneIn(5) ? Bytes(0, process.swapped) : 0;
  process.allocated = Bytes(0, process.room + process.swapped + process.stranded);
  process.wanted = OneIn(4) ? Bytes(1, 60) : 0;
  process.pins = OneIn(3);
  process.wanted_at = now - Number<Nanos>(0, 3 * kSecond);
  process.granted_at = OneIn(4) ? now - Number<Nanos>(0, 2 * kSecond) : -kSecond;
  process.push = OneIn(6) ? Bytes(1, 60) : 0;
  process.away = OneIn(5);
  process.parked = process.swapped > 0 && OneIn(4);
  process.has_line = !OneIn(8);
  process.moved_for = Number<Nanos>(0, kSecond);
  process.stuck_until = OneIn(6) ? now + Number<Nanos>(-kSecond, kSecond) : 0;
  process.no_memory_to_settle = OneIn(10);
  process.no_host_memory = id % 4 == 0;
  process.works = OneIn(2);
  process.stopped = OneIn(2);
  process.thawed = process.stopped && OneIn(5);
  process.peers = OneIn(3);
  process.alone = process.peers && process.stopped && !process.thawed && OneIn(4);
  process.still = process.stopped && OneIn(2);
  process.unsafe = process.stopped && !process.thawed && !process.alone && OneIn(3);
  return process;
}

// Without a mover nothing is under way.
void AbandonMoves(ResidencyState& state) {
  if (state.mover_ready) return;
  for (VGpuResidence& vgpu : state.vgpus) {
    for (ProcessResidence& process : vgpu.processes) {
      process.moving = Moving::kNothing;
      process.ordered = process.done = 0;
    }
  }
}

ResidencyState AnyState(Nanos now) {
  ResidencyState state{.capacity = Bytes(0, 200), .chunk = kChunk, .unit = 1};
  state.file = OneIn(3) ? Bytes(0, 200) : 0;
  state.pool = {.size = Bytes(0, 100), .wanted = Bytes(0, 100), .most = OneIn(8) ? 0 : Bytes(100, 400)};
  state.pool.used = Bytes(0, state.pool.size);
  state.pool.prepared = OneIn(2) ? Bytes(0, 100) : 0;
  if (OneIn(2)) state.pool.prepare = OneIn(2) ? std::nullopt : std::optional(Bytes(0, 500));
  if (!OneIn(3)) state.pool.machine = Bytes(0, 500);
  state.pool.pressure = OneIn(6) ? 5000 : 0;
  state.pool.grew_at = now - Number<Nanos>(0, kSecond);
  state.pool.full_until = OneIn(8) ? now + kSecond : 0;
  state.mover_ready = !OneIn(6);
  state.mover_hopeless = !state.mover_ready && OneIn(2);
  state.last_moved = now - Number<Nanos>(0, 20 * kSecond);
  state.missing = OneIn(6) ? Number<std::size_t>(1, 3) : 0;
  state.missing_since = now - Number<Nanos>(0, 2 * kLongestAbsence);
  ProcessId next = 1;
  const auto count = Number<VgpuId>(1, 5);
  for (VgpuId id = 1; id <= count; ++id) {
    VGpuResidence vgpu{.id = id, .weight = Number(1u, 500u), .priority = Number(7u, 9u)};
    if (OneIn(3)) vgpu.limit = Bytes(0, 80);
    if (OneIn(3)) vgpu.request = Bytes(0, vgpu.limit.value_or(40));
    if (OneIn(3)) vgpu.swap = Bytes(0, 60);
    for (int i = Number(0, 3); i > 0; --i) vgpu.processes.push_back(AnyProcess(next++, now));
    state.vgpus.push_back(vgpu);
  }
  AbandonMoves(state);
  return state;
}

// The state some time later: some of what was planned is true, and some programs did something else.
void Change(ResidencyState& state, const ResidencyPlan& plan, Nanos now) {
  for (VGpuResidence& vgpu : state.vgpus) {
    for (ProcessResidence& process : vgpu.processes) {
      for (const ResidencyAction& action : plan.actions) {
        if (action.process == process.id && !OneIn(10)) Apply(action, now, state.file > 0, process);
      }
      if (process.stopped) process.still = process.still || OneIn(2);
      if (OneIn(3)) {
        const ProcessId id = process.id;
        process = AnyProcess(id, now);
      }
    }
  }
  if (OneIn(5)) state.mover_ready = !state.mover_ready;
  AbandonMoves(state);
  if (OneIn(3)) state.missing = 0;
  if (OneIn(10)) state.capacity = Bytes(0, 200);
  if (OneIn(10) && state.vgpus.size() > 1) state.vgpus.erase(state.vgpus.begin());
}

RC_GTEST_PROP(ResidencyPlannerProperty, EveryPlanOfAnyHistoryKeepsTheLaws, ()) {
  ResidencyPlanner planner, twin;
  Nanos now = 100 * kSecond;
  ResidencyState state = AnyState(now);
  for (int plans = Number(1, 30); plans > 0; --plans) {
    const ResidencyPlan plan = planner.Plan(state, now);
    RC_ASSERT(plan == twin.Plan(state, now));
    RequireLawful(BrokenLaws(state, plan, now));
    for (const VGpuResidence& vgpu : state.vgpus) {
      for (const ProcessResidence& process : vgpu.processes) {
        const RoomWish wish{.process = process.id, .bytes = OneIn(4) ? 0 : Bytes(0, 100), .pins = OneIn(2)};
        const RoomAnswer answer = planner.Ask(state, wish, now);
        RC_ASSERT(answer == twin.Ask(state, wish, now));
        RequireLawful(BrokenLaws(state, wish, answer, plan.pressed, now));
      }
    }
    now += Number<Nanos>(0, OneIn(4) ? 3 * kSecond : 10 * kMillisecond);
    Change(state, plan, now);
  }
}

// Where nothing happens plans come to an end, and the last one is the same as the one before.
RC_GTEST_PROP(ResidencyPlannerProperty, PlansOfOneMomentComeToAnEnd, ()) {
  ResidencyPlanner planner;
  const Nanos now = 100 * kSecond;
  ResidencyState state = AnyState(now);
  for (int plans = 0;; ++plans) {
    const ResidencyPlan plan = planner.Plan(state, now);
    if (plan.actions.empty() && plan.look_at > now) break;
    RC_ASSERT(plans < 20);
    for (const ResidencyAction& action : plan.actions) {
      Apply(action, state.pool);
      for (VGpuResidence& vgpu : state.vgpus) {
        for (ProcessResidence& process : vgpu.processes) {
          if (process.id == action.process) Apply(action, now, state.file > 0, process);
          if (process.stopped) process.still = true;
        }
      }
    }
  }
}

// ---- programs in virtual time ----

constexpr std::uint64_t kCapacity = 40ull << 30;
constexpr std::uint64_t kBlock = 1ull << 30;

void RequireLawful(const ResidencyWorld& world) { RequireLawful(world.violations()); }

// Programs of one class that allocate, free, work and rest as they like.
void AnyProgramStep(ResidencyWorld& world, ProcessId id) {
  switch (Number(0, 5)) {
    case 0:
      world.Work(id, false);
      break;
    case 1:
    case 2:
      world.Work(id, true);
      break;
    case 3:
      world.Free(id, Bytes(0, 80) * kBlock / 4);
      break;
    default:
      if (world.programs.at(id).asks_for == 0) world.Allocate(id, Bytes(1, 80) * kBlock / 4, OneIn(4));
  }
}

RC_GTEST_PROP(ResidencyPlannerProperty, AWorldOfAnyProgramsKeepsTheLaws, ()) {
  ResidencyWorld world(kCapacity);
  world.state.chunk = kBlock;
  if (OneIn(3)) world.state.file = 100 * kBlock;
  const auto count = Number<ProcessId>(1, 5);
  for (ProcessId id = 1; id <= count; ++id) {
    VGpuResidence& vgpu = world.AddVGpu(static_cast<VgpuId>(id), Number(7u, 8u));
    if (OneIn(3)) vgpu.request = Bytes(1, kCapacity / kBlock / count) * kBlock;
    if (OneIn(4)) vgpu.limit = vgpu.request + Bytes(1, 80) * kBlock / 4;
    if (OneIn(4)) vgpu.swap = Bytes(0, 20) * kBlock;
    world.AddProcess(static_cast<VgpuId>(id), id);
    world.programs.at(id).drains_for = *rc::gen::element<Nanos>(0, kMillisecond, 20 * kMillisecond);
    world.Process(id).peers = OneIn(3);
  }
  for (int steps = Number(1, 40); steps > 0; --steps) {
    AnyProgramStep(world, Number<ProcessId>(1, count));
    world.Look();
    world.Run(Number<Nanos>(0, 2 * kSecond));
    RequireLawful(world);
  }
}

// Busy programs without limits, any of which fits alone: each waits for at most a turn and a move of each other.
RC_GTEST_PROP(ResidencyPlannerProperty, EachThatWaitsIsServedInTime, ()) {
  ResidencyWorld world(kCapacity, {.turn_max = 2 * kSecond});
  world.state.chunk = kBlock;
  const auto count = Number<ProcessId>(2, 4);
  for (ProcessId id = 1; id <= count; ++id) {
    world.AddVGpu(static_cast<VgpuId>(id));
    world.AddProcess(static_cast<VgpuId>(id), id);
    world.programs.at(id).drains_for = *rc::gen::element<Nanos>(0, 5 * kMillisecond);
  }
  for (ProcessId id = 1; id <= count; ++id) {
    world.Work(id, true);
    for (std::uint64_t bytes = Bytes(5, 38) * kBlock; bytes > 0;) {
      const std::uint64_t block = std::min(bytes, Bytes(1, 20) * kBlock);
      RC_ASSERT(world.Allocate(id, block).kind != RoomAnswer::Kind::kRefuse);
      for (int i = 0; world.programs.at(id).asks_for > 0; ++i) {
        RC_ASSERT(i < 60);
        world.Run(kSecond);
        RequireLawful(world);
      }
      bytes -= block;
    }
  }
  for (auto& [_, program] : world.programs) program.longest_wait = 0;
  world.Run(60 * kSecond);
  RequireLawful(world);
  // 40 GiB out and in at 50 GB/s, one chunk behind another, the drain, and the looks between them.
  constexpr Nanos kMove = 2 * kSecond;
  const Nanos most = static_cast<Nanos>(count - 1) * (world.LongestTurn() + kMove) + kMove;
  for (const auto& [id, program] : world.programs) {
    RC_ASSERT(program.longest_wait <= most);
    RC_ASSERT(program.ran > 0);
  }
}

// Programs that come one after the other, whatever those before them do: each begins with memory that cannot be moved,
// a context, and allocates. As long as the contexts fit, nobody is refused, and nobody waits for the context longer
// than memory needs to move.
RC_GTEST_PROP(ResidencyPlannerProperty, NewcomersGetTheirContextsAfterAMoveAndNobodyIsRefused, ()) {
  ResidencyWorld world(kCapacity, {.turn_max = 2 * kSecond});
  world.state.chunk = kBlock;
  const auto count = Number<ProcessId>(2, 8);
  for (ProcessId id = 1; id <= count; ++id) {
    world.AddVGpu(static_cast<VgpuId>(id));
    world.AddProcess(static_cast<VgpuId>(id), id);
    WorldProgram& program = world.programs.at(id);
    program.drains_for = *rc::gen::element<Nanos>(0, 5 * kMillisecond);
    RC_ASSERT(world.Allocate(id, kBlock, /*pins=*/true).kind != RoomAnswer::Kind::kRefuse);
    world.Run(kSecond);  // all memory moves in that
    RequireLawful(world);
    RC_ASSERT(world.Process(id).pinned == kBlock);
    if (OneIn(4)) continue;
    world.Work(id, true);
    RC_ASSERT(world.Allocate(id, Bytes(1, 20) * kBlock).kind != RoomAnswer::Kind::kRefuse);
    world.Run(Number<Nanos>(0, kSecond));
    RequireLawful(world);
  }
  world.Run(30 * kSecond);
  RequireLawful(world);
  for (const auto& [id, program] : world.programs) RC_ASSERT(program.asks_for == 0);
}

// A promise that others have borrowed is back after a move, whenever its vGPU wants it.
RC_GTEST_PROP(ResidencyPlannerProperty, APromiseIsBackAfterAMove, ()) {
  ResidencyWorld world(kCapacity);
  world.state.chunk = kBlock;
  const std::uint64_t request = Bytes(1, 30) * kBlock;
  world.AddVGpu(1).request = request;
  world.AddProcess(1, 1);
  for (ProcessId id = 2; id <= 4; ++id) {
    world.AddVGpu(static_cast<VgpuId>(id), Number(7u, 9u));
    world.AddProcess(static_cast<VgpuId>(id), id);
    world.Allocate(id, Bytes(1, 38) * kBlock);
    world.Work(id, true);
  }
  world.Run(Number<Nanos>(0, 20 * kSecond));
  for (int rounds = 0; rounds < 3; ++rounds) {
    if (rounds == 0) RC_ASSERT(world.Allocate(1, request).kind != RoomAnswer::Kind::kRefuse);
    world.Work(1, true);
    world.Run(3 * kSecond);  // both ways
    RequireLawful(world);
    RC_ASSERT(world.Process(1).Movable() == request && !world.Process(1).stopped);
    const Nanos ran = world.programs.at(1).ran;
    world.Run(5 * kSecond);
    RC_ASSERT(world.programs.at(1).ran == ran + 5 * kSecond);
    world.Work(1, false);
    world.Run(Number<Nanos>(0, 30 * kSecond));
    RequireLawful(world);
  }
}

}  // namespace
}  // namespace tessera::sched
