// How long the residency policy needs for one event and its decisions, by the number of vGPUs. Run by bench/run.py.
#include <benchmark/benchmark.h>

#include <random>

#include "base/size.h"
#include "sched/residency/residency.h"

using namespace tessera;
using namespace tessera::sched;

namespace {

constexpr std::uint64_t kCapacity = 80 * kGiB;

std::uint64_t MeanDemand(VgpuId vgpus, double load) {
  return static_cast<std::uint64_t>(load * static_cast<double>(kCapacity) / vgpus);
}

// vGPUs of three classes, most of them active, whose demands together are `load` times what there is.
Residency Crowd(VgpuId vgpus, double load) {
  Residency policy;
  policy.SetCapacity(kCapacity, 0);
  const std::uint64_t demand = MeanDemand(vgpus, load);
  for (VgpuId id = 0; id < vgpus; ++id) {
    policy.Add(id, 50 + id, id % 3, 0);
    policy.Demand(id, demand, 0);
    policy.Resident(id, demand / 2, 0);
    policy.Active(id, 0);
  }
  benchmark::DoNotOptimize(policy.TakeDecisions());
  return policy;
}

void Step(benchmark::State& state, double load) {
  const auto vgpus = static_cast<VgpuId>(state.range(0));
  Residency policy = Crowd(vgpus, load);
  std::mt19937_64 random(1);
  Nanos now = 0;
  for (auto _ : state) {
    const auto id = static_cast<VgpuId>(random() % vgpus);
    now += kMillisecond;
    switch (random() % 6) {
      case 0:
        policy.Active(id, now);
        break;
      case 1:
        if (random() % 4 == 0) policy.Idle(id, now);
        break;
      case 2:
        policy.Resident(id, policy.DecisionFor(id).target, now);
        break;
      case 3:
        policy.Demand(id, random() % 100 * MeanDemand(vgpus, load) / 50, now);
        break;
      case 4:
        policy.Ready(id, now, kSecond);
        break;
      default:
        now = policy.NextDeadline() == kNever ? now : policy.NextDeadline();
        policy.Advance(now);
    }
    benchmark::DoNotOptimize(policy.TakeDecisions());
  }
}

void InTurns(benchmark::State& state) { Step(state, 2); }
void Together(benchmark::State& state) { Step(state, 0.4); }
BENCHMARK(InTurns)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(Together)->Arg(8)->Arg(64)->Arg(256);

}  // namespace

BENCHMARK_MAIN();
