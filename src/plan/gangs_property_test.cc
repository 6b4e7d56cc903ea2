// Jobs on several GPUs whose memory does not fit, with the daemon's own policies. The cases are the same on every run.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/size.h"
#include "plan/simulator.h"
#include "sched/testing/any_number.h"

namespace tessera::plan {
namespace {

[[maybe_unused]] const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1 max_success=40", 0);

using sched::Number;

constexpr std::uint64_t kMemory = 40 * kGiB;
constexpr Nanos kTurnMax = 2 * kSecond;
constexpr sched::VgpuId kJobs = 6;

// The longest that a round takes: a turn of each, a second of moving before each, and half a turn more that one may
// have had before its own.
constexpr Nanos kRound = kJobs * (kTurnMax + kTurnMax / 2 + 2 * kSecond);

RC_GTEST_PROP(GangPlanProperty, EachJobGoesOnWithinTwoRounds, ()) {
  GpuSpec spec = {.memory = kMemory, .time_by = TimeBy::kNobody};
  spec.residency.turn_max = kTurnMax;
  const auto count = Number<std::size_t>(1, 8);
  Simulator gpus(std::vector<GpuSpec>(count, spec));
  std::map<sched::VgpuId, bool> there;
  const auto add = [&](sched::VgpuId id) {
    std::vector<std::size_t> on;
    for (std::size_t gpu = 0; gpu < count; ++gpu) {
      if (Number(0, 2) > 0) on.push_back(gpu);
    }
    if (on.empty()) on.push_back(Number<std::size_t>(0, count - 1));
    if (Number(0, 1) > 0) std::ranges::reverse(on);
    const std::uint64_t bytes = Number<std::uint64_t>(2, 36) * kGiB;
    RC_ASSERT(gpus.Add(id, {}, {.phases = {{.memory = bytes}}}, on).has_value());
    there[id] = true;
  };
  for (sched::VgpuId id = 1; id <= kJobs; ++id) add(id);
  for (int i = 0; i < 3; ++i) {
    gpus.Run(Number<Nanos>(1, 5 * kSecond));
    const auto who = Number<sched::VgpuId>(1, kJobs);
    if (there[who]) {
      gpus.Remove(who);
      there[who] = false;
    } else {
      add(who);
    }
  }
  gpus.Run(kRound);
  for (int round = 0; round < 2; ++round) {
    gpus.StartMeasuring();
    gpus.Run(2 * kRound);
    RC_ASSERT(gpus.violations().empty());
    for (const auto& [id, is] : there) {
      if (is) RC_ASSERT(gpus.Of(id).progressed > 0);
    }
  }
}

}  // namespace
}  // namespace tessera::plan
