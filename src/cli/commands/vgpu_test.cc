#include "cli/commands/vgpu.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/testing/json_with.h"

namespace tessera::cli {
using client::Json;

namespace {

const Json kVgpu = {{"name", "train"},
                    {"gpu", 0},
                    {"gpu_uuid", "GPU-1"},
                    {"uid", 1000},
                    {"ephemeral", true},
                    {"owner_pid", 4711},
                    {"memory_limit_bytes", 805306368},
                    {"memory_max_bytes", 2147483648},
                    {"memory_current_bytes", 1073741824},
                    {"memory_peak_bytes", 1610612736},
                    {"memory_available_bytes", 1073741824},
                    {"oom_events", 1},
                    {"compute_request_pct", 30.0},
                    {"compute_limit_pct", 60.0},
                    {"compute_weight", 100},
                    {"compute_priority", 2},
                    {"slice_us", 0},
                    {"frozen", Json::array()},
                    {"compute_current_pct", 41.25},
                    {"compute_busy_us", 1000},
                    {"compute_waited_us", 3000},
                    {"compute_throttled_us", 2000},
                    {"throttled", 4},
                    {"preempted", 5},
                    {"state", "running"},
                    {"processes", {4711, 4712}}};

TEST(Vgpu, VgpusAsATable) {
  EXPECT_EQ(VgpuTable(Json::array({kVgpu})).Text(false),
            "NAME   GPU  MEMORY    MAX     PEAK  COMPUTE  WEIGHT  PRIORITY  NOW %  STATE    PROCESSES\n"
            "train    0   1 GiB  2 GiB  1.5 GiB    30:60     100         2   41.3  running          2\n");
  EXPECT_NE(VgpuTable(Json::array({With(kVgpu, "frozen", {"policy"})})).Text(false).find("  frozen  "),
            std::string::npos);
}

TEST(Vgpu, OneVgpuInLines) {
  const std::string text = VgpuText(kVgpu);
  EXPECT_NE(text.find("memory            1 GiB of 2 GiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("memory limit      768 MiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("waited            3 ms, 2 ms of it for its limit, 4 times, taken off for others 5 times\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("lives             as long as process 4711\n"), std::string::npos) << text;
  EXPECT_NE(text.find("processes         4711 4712\n"), std::string::npos) << text;
  EXPECT_NE(text.find("compute priority  2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("compute slice     none\n"), std::string::npos) << text;
  EXPECT_NE(text.find("frozen            no\n"), std::string::npos) << text;
  Json swapped = With(With(kVgpu, "memory_swap_current_bytes", 1073741824), "moved_out_bytes", 2147483648);
  swapped = With(With(swapped, "moved_in_bytes", 1073741824), "moving_us", 350000);
  swapped["memory_pressure"] = {
      {"some_avg10", 12.5}, {"some_avg60", 3}, {"some_avg300", 0.61}, {"some_total_us", 1200000}};
  const std::string told = VgpuText(With(swapped, "memory_resident_bytes", 536870912));
  EXPECT_NE(told.find("memory on GPU     512 MiB\n"), std::string::npos) << told;
  EXPECT_NE(told.find("memory swapped    1 GiB\n"), std::string::npos) << told;
  EXPECT_NE(told.find("memory moved      2 GiB out, 1 GiB in, in 350 ms\n"), std::string::npos) << told;
  EXPECT_NE(told.find("memory pressure   12.5 % of the last 10 s, 3 % of 60 s, 0.6 % of 300 s; 1.2 s in all\n"),
            std::string::npos)
      << told;
  Json pinned = With(kVgpu, "memory_pinned_bytes", 69206016);
  pinned["memory_pinned_by"] = {{"context", 67108864}, {"pool", 2097152}, {"vmm", 0}};
  EXPECT_NE(VgpuText(pinned).find("memory pinned     66 MiB: context 64 MiB, pool 2 MiB\n"), std::string::npos)
      << VgpuText(pinned);
  EXPECT_NE(VgpuText(With(swapped, "memory_swap_max_bytes", 2147483648)).find("1 GiB of at most 2 GiB\n"),
            std::string::npos);
  const std::string steered =
      VgpuText(With(With(kVgpu, "slice_us", 3500), "frozen", Json::array({"operator", "policy"})));
  EXPECT_NE(steered.find("compute slice     3 ms\n"), std::string::npos) << steered;
  EXPECT_NE(steered.find("frozen            by operator, policy\n"), std::string::npos) << steered;
}

TEST(Vgpu, AGoalAndWhatIsKnownOfIt) {
  const std::string none = VgpuText(kVgpu);
  EXPECT_NE(none.find("goal              none\n"), std::string::npos) << none;
  EXPECT_NE(none.find("bursts            none\n"), std::string::npos) << none;
  Json latency = With(kVgpu, "goal", "p99=20ms");
  latency["bursts"] = {
      {"count", 0}, {"p50_us", nullptr}, {"attained", nullptr}, {"violations", 0}, {"verdict", "none"}};
  const std::string fresh = VgpuText(latency);
  EXPECT_NE(fresh.find("goal              p99=20ms: not known yet, 0 % too long\n"), std::string::npos) << fresh;
  latency["bursts"] = {{"count", 1200},       {"p50_us", 3123},      {"p95_us", 14900},
                       {"p99_us", 25000},     {"solo_p50_us", 950},  {"attained", 25100},
                       {"violations", 0.035}, {"verdict", "missed"}, {"reason", "beside b"}};
  const std::string told = VgpuText(latency);
  EXPECT_NE(told.find("bursts            1200, p50 3.1 ms, p95 14 ms, p99 25 ms, alone p50 950 us\n"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("goal              p99=20ms: missed, attained 25 ms, 3.5 % too long: beside b\n"),
            std::string::npos)
      << told;
  Json speed = With(kVgpu, "goal", "speed=80%");
  speed["bursts"] = {{"count", 7}, {"attained", 81.5}, {"verdict", "kept"}};
  EXPECT_NE(VgpuText(speed).find("goal              speed=80%: kept, attained 81.5 %\n"), std::string::npos)
      << VgpuText(speed);
}

TEST(Vgpu, ItsGang) {
  EXPECT_NE(VgpuText(kVgpu).find("gang              none\n"), std::string::npos) << VgpuText(kVgpu);
  const std::string text = VgpuText(With(kVgpu, "gang", "job"));
  EXPECT_NE(text.find("gang              job\n"), std::string::npos) << text;
}

TEST(Vgpu, ItsLabels) {
  EXPECT_NE(VgpuText(kVgpu).find("labels            none\n"), std::string::npos) << VgpuText(kVgpu);
  const std::string text = VgpuText(With(kVgpu, "labels", Json{{"pod", "b"}, {"team", "a"}}));
  EXPECT_NE(text.find("labels            pod=b, team=a\n"), std::string::npos) << text;
  EXPECT_NE(VgpuText(With(kVgpu, "labels", 5)).find("labels            none\n"), std::string::npos);
}

TEST(Vgpu, AnswersOfAnotherVersionDoNotCrash) {
  const Json odd = {{"name", 5}, {"gpu", "zero"}, {"memory_max_bytes", -1}, {"processes", nullptr}, {"state", true}};
  EXPECT_NE(VgpuText(odd).find("processes         none"), std::string::npos);
  EXPECT_NE(VgpuTable(Json::array({odd, Json(), Json(3)})).Text(false), "");
}

}  // namespace
}  // namespace tessera::cli
