// How long the residency planner needs for one plan, and for the answer to one question for room, by the number of
// vGPUs. A plan is everything that the daemon decides after an event. Run by bench/run.py.
#include <benchmark/benchmark.h>

#include <random>

#include "base/size.h"
#include "sched/residency/planner/residency_planner.h"

using namespace tessera;
using namespace tessera::sched;

namespace {

constexpr std::uint64_t kCapacity = 80 * kGiB;
constexpr std::uint64_t kChunk = 64 * kMiB;

// vGPUs of three classes with one process each, whose memory together is `load` times the GPU's.
ResidencyState Crowd(VgpuId vgpus, double load) {
  ResidencyState state{.capacity = kCapacity, .chunk = kChunk, .mover_ready = true};
  state.pool = {.size = 2 * kCapacity, .wanted = 4 * kCapacity, .most = 4 * kCapacity};
  const std::uint64_t all = static_cast<std::uint64_t>(load * kCapacity / vgpus) / kChunk * kChunk;
  const std::uint64_t on_gpu = std::min(all, kCapacity / vgpus / kChunk * kChunk);
  for (VgpuId id = 1; id <= vgpus; ++id) {
    ProcessResidence process{.id = id, .room = on_gpu, .swapped = all - on_gpu, .allocated = all, .has_line = true};
    process.works = true;
    state.vgpus.push_back({.id = id, .weight = 50 + id, .priority = id % 3, .processes = {process}});
  }
  return state;
}

// One program begins or ends its work, or has less memory or more; the mover does at once what it was told.
void Change(ResidencyState& state, const ResidencyPlan& plan, std::mt19937_64& random, Nanos now) {
  for (const ResidencyAction& action : plan.actions) {
    if (action.process == 0) continue;
    ProcessResidence& process = state.vgpus[action.process - 1].processes.front();
    Apply(action, now, false, process);
    process.still = process.stopped;
    if (process.moving == Moving::kOut) {
      process.room -= process.ordered;
      process.swapped += process.ordered;
    }
    if (process.moving == Moving::kIn) process.swapped -= process.ordered;
    process.moving = Moving::kNothing;
    process.ordered = 0;
  }
  ProcessResidence& process = state.vgpus[random() % state.vgpus.size()].processes.front();
  if (random() % 2 == 0) process.works = !process.works;
  if (random() % 8 == 0) process.credit = random() % 2 * std::min(kChunk, process.room);
}

void Plans(benchmark::State& run, double load) {
  const auto vgpus = static_cast<VgpuId>(run.range(0));
  ResidencyState state = Crowd(vgpus, load);
  ResidencyPlanner planner;
  std::mt19937_64 random(1);
  Nanos now = kSecond;
  std::size_t actions = 0;
  for (auto _ : run) {
    const ResidencyPlan& plan = planner.Plan(state, now);
    run.PauseTiming();
    actions += plan.actions.size();
    now += kMillisecond;
    Change(state, plan, random, now);
    run.ResumeTiming();
  }
  run.counters["actions"] = benchmark::Counter(static_cast<double>(actions), benchmark::Counter::kAvgIterations);
}

void Answers(benchmark::State& run) {
  const auto vgpus = static_cast<VgpuId>(run.range(0));
  const ResidencyState state = Crowd(vgpus, 0.4);
  const ResidencyPlanner planner;
  for (auto _ : run) benchmark::DoNotOptimize(planner.Ask(state, {vgpus, kChunk}, kSecond));
}

void InTurns(benchmark::State& run) { Plans(run, 2); }
void Together(benchmark::State& run) { Plans(run, 0.4); }
BENCHMARK(InTurns)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(Together)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(Answers)->Arg(8)->Arg(64)->Arg(256);

}  // namespace

BENCHMARK_MAIN();
