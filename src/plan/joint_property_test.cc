// Properties of GPUs whose time and memory programs share, for all programs.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/size.h"
#include "plan/simulator.h"
#include "plan/testing/any.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;

GpuSpec AnyGpu() {
  GpuSpec spec{.memory = Bytes(10, 80) * kGiB, .time_by = *rc::gen::element(TimeBy::kTokens, TimeBy::kSteering)};
  spec.moves = {.out_bytes_per_second = Number(5, 100) * 1e9,
                .in_bytes_per_second = Number(5, 100) * 1e9,
                .batch = 64 * kMiB << Number(0, 5),
                .context = Bytes(0, 1) * kGiB};
  spec.steering.min_share_pct = *rc::gen::element(0, 0, 10);
  return spec;
}

Program AnyProgram() {
  Program program{.start = Span::Between(0, kSecond),
                  .in_flight = *rc::gen::element<Nanos>(0, 2 * kMs, 80 * kMs),
                  .sync = AnyTime(0, kMs)};
  program.phases.resize(static_cast<std::size_t>(Number(1, 3)));
  for (Phase& phase : program.phases) {
    phase.memory = Bytes(0, 50) * kGiB;
    phase.burst = *rc::gen::element<Nanos>(0, kNever, AnyTime(kMs, 200 * kMs), AnyTime(kMs, 5 * kSecond));
    phase.bursts = static_cast<std::uint32_t>(Number(1, 20));
    phase.gap = *rc::gen::element(Span::Exactly(AnyTime(kMs, kSecond)), Span::About(AnyTime(kMs, kSecond)));
    phase.open = Number(0, 1) == 0;
    if (Number(0, 2) == 0) phase.step = AnyTime(kMs, 50 * kMs);
    phase.pause = Span::Between(0, AnyTime(0, 8 * kMs));
  }
  return program;
}

sched::Shares AnyTerms() {
  return {.limit_pct = *rc::gen::element(100.0, 100.0, Number(2, 99) * 1.0),
          .weight = Number(10u, 1000u),
          .priority = Number(6u, 8u)};
}

using Where = std::vector<std::size_t>;

// Limits, the memory of the GPU, and one holder of the token are seen to by the simulator itself.
RC_GTEST_PROP(JointProperty, NothingUnlawfulHappensAndAllTimeIsAccountedFor, ()) {
  Simulator gpus({AnyGpu(), AnyGpu()}, Number<std::uint64_t>(1, 1'000'000));
  const auto count = Number<sched::VgpuId>(1, 6);
  for (sched::VgpuId id = 1; id <= count; ++id) {
    const auto on = *rc::gen::element(Where{0}, Where{1}, Where{0, 1});
    RC_ASSERT(gpus.Add(id, AnyTerms(), AnyProgram(), on).has_value());
  }
  gpus.Run(kSecond);
  gpus.StartMeasuring(kSecond);
  for (int change = 0; change < 3; ++change) {
    gpus.Run(AnyTime(0, 10 * kSecond));
    const auto id = Number<sched::VgpuId>(1, count);
    if (change < 2) RC_ASSERT(gpus.Update(id, AnyTerms()).has_value());
  }
  if (!gpus.violations().empty()) RC_FAIL(gpus.violations().front());
  for (sched::VgpuId id = 1; id <= count; ++id) {
    const PartFigures figures = gpus.Of(id);
    RC_ASSERT(figures.progressed <= figures.executed);
    RC_ASSERT(figures.waited_time + figures.waited_memory + figures.executed <= figures.had_work);
    RC_ASSERT(figures.longest_memory_wait <= figures.longest_wait);
    RC_ASSERT(figures.had_work <= figures.measured);
  }
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    const GpuFigures figures = gpus.OfGpu(gpu);
    RC_ASSERT(figures.executed + figures.moving + figures.switching <= figures.measured);
  }
  gpus.Remove(Number<sched::VgpuId>(1, count));
  gpus.Run(kSecond);
  if (!gpus.violations().empty()) RC_FAIL(gpus.violations().front());
}

// A program that always has work on a GPU of programs of its class gets some of the time, whatever memory the others
// take.
RC_GTEST_PROP(JointProperty, NobodyStarves, ()) {
  Simulator gpu({AnyGpu()}, Number<std::uint64_t>(1, 1'000'000));
  const auto count = Number<sched::VgpuId>(2, 5);
  for (sched::VgpuId id = 1; id <= count; ++id) {
    Program program = id == 1 ? Program{} : AnyProgram();
    program.phases.front().memory = Bytes(0, 50) * kGiB;
    RC_ASSERT(gpu.Add(id, {.weight = Number(50u, 200u)}, program).has_value());
  }
  gpu.Run(10 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(200 * kSecond);
  if (!gpu.violations().empty()) RC_FAIL(gpu.violations().front());
  // A quarter of the weight of each other; turns may be long, and the measurement may begin in a bad moment.
  RC_ASSERT(gpu.Of(1).ExecutedPct() >= 100.0 / (4.0 * count) * 0.5);
}

}  // namespace
}  // namespace tessera::plan
