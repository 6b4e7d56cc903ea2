#include "cli/output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/demo_view.h"
#include "cli/doctor.h"
#include "cli/list.h"
#include "cli/vgpu.h"

namespace tessera::cli {
namespace {

TEST(Output, PercentagesHaveNoNeedlessDigits) {
  EXPECT_EQ(FormatPercent(30), "30");
  EXPECT_EQ(FormatPercent(12.5), "12.5");
  EXPECT_EQ(FormatPercent(29.97), "30");
  EXPECT_EQ(FormatPercent(0), "0");
}

TEST(Output, TimesAreShort) {
  EXPECT_EQ(FormatMicroseconds(0), "0 us");
  EXPECT_EQ(FormatMicroseconds(999), "999 us");
  EXPECT_EQ(FormatMicroseconds(350'000), "350 ms");
  EXPECT_EQ(FormatMicroseconds(1'550'000), "1.5 s");
  EXPECT_EQ(FormatMicroseconds(59'999'999), "59.9 s");
  EXPECT_EQ(FormatMicroseconds(125'000'000), "2 min 5 s");
  EXPECT_EQ(FormatMicroseconds(7'500'000'000), "2 h 5 min");
}

const Json kProcess = {{"pid", 4711},
                       {"name", "python"},
                       {"vgpu", "train"},
                       {"gpu", 1},
                       {"memory_bytes", 2147483648},
                       {"compute_busy_us", 1500000},
                       {"gate_wait_us", 2000},
                       {"oom_errors", 2},
                       {"state", "active"}};

TEST(Output, ProcessesAsATable) {
  EXPECT_EQ(ProcessTable(Json::array({kProcess})).Text(false),
            " PID  PROGRAM  VGPU   GPU  STATE   MEMORY  GPU TIME  WAITED  OOM\n"
            "4711  python   train    1  active   2 GiB     1.5 s    2 ms    2\n");
}

TEST(Output, NothingIsATableOfTitles) {
  EXPECT_EQ(ProcessTable(Json::array()).Text(false), "PID  PROGRAM  VGPU  GPU  STATE  MEMORY  GPU TIME  WAITED  OOM\n");
}

TEST(Output, GpusAsATable) {
  const Json gpu = {{"index", 0},
                    {"uuid", "GPU-1"},
                    {"name", "Soft"},
                    {"memory_total_bytes", 17179869184},
                    {"memory_used_bytes", 1073741824},
                    {"memory_promised_bytes", 0},
                    {"compute_busy_pct", 49.96},
                    {"compute_requested_pct", 50.0},
                    {"vgpus", 3},
                    {"processes", 2}};
  EXPECT_EQ(GpuTable(Json::array({gpu})).Text(false),
            "GPU  NAME  MEMORY   USED  PROMISED  BUSY %  REQUESTED %  VGPUS  PROCESSES  UUID\n"
            "  0  Soft  16 GiB  1 GiB       0 B      50           50      3          2  GPU-1\n");
}

const Json kVgpu = {{"name", "train"},
                    {"gpu", 0},
                    {"gpu_uuid", "GPU-1"},
                    {"uid", 1000},
                    {"ephemeral", true},
                    {"owner_pid", 4711},
                    {"memory_max_bytes", 2147483648},
                    {"memory_current_bytes", 1073741824},
                    {"memory_peak_bytes", 1610612736},
                    {"memory_available_bytes", 1073741824},
                    {"oom_events", 1},
                    {"compute_request_pct", 30.0},
                    {"compute_limit_pct", 60.0},
                    {"compute_weight", 100},
                    {"compute_current_pct", 41.25},
                    {"compute_busy_us", 1000},
                    {"compute_waited_us", 0},
                    {"token", "held"},
                    {"processes", {4711, 4712}}};

TEST(Output, VgpusAsATable) {
  EXPECT_EQ(VgpuTable(Json::array({kVgpu})).Text(false),
            "NAME   GPU  MEMORY    MAX     PEAK  COMPUTE  WEIGHT  NOW %  TOKEN  PROCESSES\n"
            "train    0   1 GiB  2 GiB  1.5 GiB    30:60     100   41.3  held           2\n");
}

TEST(Output, OneVgpuInLines) {
  const std::string text = VgpuText(kVgpu);
  EXPECT_NE(text.find("memory            1 GiB of 2 GiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lives             as long as process 4711\n"), std::string::npos) << text;
  EXPECT_NE(text.find("processes         4711 4712\n"), std::string::npos) << text;
}

TEST(Output, AnswersOfAnotherVersionDoNotCrash) {
  const Json odd = {{"name", 5}, {"gpu", "zero"}, {"memory_max_bytes", -1}, {"processes", nullptr}, {"token", true}};
  EXPECT_NE(VgpuText(odd).find("processes         none"), std::string::npos);
  EXPECT_NE(VgpuTable(Json::array({odd, Json(), Json(3)})).Text(false), "");
}

TEST(Output, BarsFillFromTheLeft) {
  EXPECT_EQ(Bar(0, 4), "    ");
  EXPECT_EQ(Bar(50, 4), "██  ");
  EXPECT_EQ(Bar(100, 4), "████");
  EXPECT_EQ(Bar(150, 4), "████");
  EXPECT_EQ(Bar(12.5, 4), "▌   ");
}

TEST(Doctor, OneFailureIsEnough) {
  EXPECT_TRUE(CanRun({{Verdict::kOk, "a", "", ""}, {Verdict::kWarn, "b", "", ""}}));
  EXPECT_FALSE(CanRun({{Verdict::kOk, "a", "", ""}, {Verdict::kFail, "b", "", ""}}));
}

}  // namespace
}  // namespace tessera::cli
