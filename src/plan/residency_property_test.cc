// Properties of GPUs whose memory programs take turns to use, for all programs.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/size.h"
#include "plan/testing/any.h"
#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;

void RequireLawful(const OneGpu& gpu) {
  if (!gpu.violations().empty()) RC_FAIL(gpu.violations().front());
}

constexpr std::uint64_t kCapacity = 40 * kGiB;

GpuSpec Gpu40(std::uint64_t chunk, double bytes_per_second = 50e9) {
  return {.memory = kCapacity,
          .time_by = TimeBy::kNobody,
          .moves = {.out_bytes_per_second = bytes_per_second, .in_bytes_per_second = bytes_per_second, .batch = chunk}};
}

// Busy ones of which no two fit together.
RC_GTEST_PROP(MemoryProperty, TimeIsInProportionToWeightAndMovesAreFew, ()) {
  const double rate = *rc::gen::element(10e9, 20e9, 50e9);
  OneGpu gpu(Gpu40(8 * kGiB, rate));
  const auto count = Number<OneGpu::Id>(2, 5);
  std::vector<std::uint32_t> weights(count);
  double sum = 0;
  std::uint32_t most = 0;
  for (OneGpu::Id id = 0; id < count; ++id) {
    weights[id] = Number(10u, 199u);
    gpu.Add(id, {.weight = weights[id]}, {.phases = {{.memory = Bytes(21, 60) * kGiB}}});
    sum += weights[id];
    most = std::max(most, weights[id]);
  }
  gpu.Run(200 * kSecond);
  const Nanos turn = gpu.OfGpu().longest_turn;
  gpu.StartMeasuring();
  gpu.Run(40 * count * turn);
  RequireLawful(gpu);
  double ran = 0;
  for (OneGpu::Id id = 0; id < count; ++id) ran += gpu.ExecutedPct(id);
  for (OneGpu::Id id = 0; id < count; ++id) {
    const double due = ran * weights[id] / sum;
    RC_ASSERT(std::abs(gpu.ExecutedPct(id) - due) <= 0.1 * due);
  }
  // Once no turn would have to be longer than turn_max.
  const double longest = 9 * static_cast<double>(gpu.OfGpu().longest_move) * most / (sum / count);
  if (longest <= 30e9) RC_ASSERT(gpu.OfGpu().MovingPct() <= 10.5);
}

Program AnyProgram() {
  if (Number(0, 2) == 0) return {.phases = {{.memory = Bytes(1, 50) * kGiB}}};
  std::vector<Phase> phases(static_cast<std::size_t>(Number(1, 3)));
  for (Phase& phase : phases) {
    phase = {.memory = Bytes(0, 50) * kGiB,
             .burst = AnyTime(kMs, 10 * kSecond),
             .bursts = 1,
             .gap = Span::Exactly(AnyTime(0, 10 * kSecond))};
  }
  return {.phases = phases};
}

RC_GTEST_PROP(MemoryProperty, NobodyWaitsForMoreThanTheTurnsOfTheOthers, ()) {
  OneGpu gpu(Gpu40(4 * kGiB));
  const auto count = Number<OneGpu::Id>(1, 6);
  for (OneGpu::Id id = 0; id < count; ++id) {
    Program program = AnyProgram();
    program.start = Span::Exactly(AnyTime(0, 10 * kSecond));
    gpu.Add(id, {.weight = Number(10u, 199u)}, program);
  }
  gpu.Run(500 * kSecond);
  RequireLawful(gpu);
  // Each comes into the way with a move and a turn, and its own memory has to come.
  const Nanos most = (count - 1) * (gpu.OfGpu().longest_turn + gpu.OfGpu().longest_move) + gpu.OfGpu().longest_move;
  for (OneGpu::Id id = 0; id < count; ++id) RC_ASSERT(gpu.Of(id).longest_wait <= most);
}

// Lower classes are there as far as room is concerned that nobody else wants.
RC_GTEST_PROP(MemoryProperty, AHigherClassDoesNotWaitForLowerOnes, ()) {
  OneGpu gpu(Gpu40(4 * kGiB));
  gpu.Add(0, {.priority = 2}, AnyProgram());
  const auto lower = Number<OneGpu::Id>(1, 5);
  for (OneGpu::Id id = 1; id <= lower; ++id) gpu.Add(id, {.priority = Number(3u, 5u)}, AnyProgram());
  gpu.Run(300 * kSecond);
  RequireLawful(gpu);
  // 40 GiB out and in at once, after what the mover had been ordered to do before; turns of others are far longer.
  RC_ASSERT(gpu.Of(0).longest_wait <= static_cast<Nanos>(3.0 * kCapacity / 50e9 * kSecond));
}

}  // namespace
}  // namespace tessera::plan
