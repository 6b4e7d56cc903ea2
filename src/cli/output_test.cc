#include "cli/output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/demo/demo_view.h"
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

Json With(Json object, const char* name, Json value) {
  object[name] = std::move(value);
  return object;
}

TEST(Output, ProcessesAsATable) {
  EXPECT_EQ(ProcessTable(Json::array({kProcess})).Text(false),
            " PID  PROGRAM  VGPU   GPU  STATE   MEMORY  GPU TIME  WAITED  OOM\n"
            "4711  python   train    1  active   2 GiB     1.5 s    2 ms    2\n");
}

TEST(Output, WhatIsSwappedHasAColumnWhereThereIsAny) {
  const Json none = With(kProcess, "memory_swapped_bytes", 0);
  EXPECT_EQ(ProcessTable(Json::array({none})).Text(false).find("SWAPPED"), std::string::npos);
  const Json some = With(kProcess, "memory_swapped_bytes", 1073741824);
  EXPECT_EQ(ProcessTable(Json::array({some, kProcess})).Text(false),
            " PID  PROGRAM  VGPU   GPU  STATE   MEMORY  SWAPPED  GPU TIME  WAITED  OOM\n"
            "4711  python   train    1  active   2 GiB    1 GiB     1.5 s    2 ms    2\n"
            "4711  python   train    1  active   2 GiB        -     1.5 s    2 ms    2\n");
}

// As the daemon tells of one that nobody started through Tessera.
const Json kUnmanaged = {{"pid", 1234567},
                         {"name", "Xorg"},
                         {"uid", 0},
                         {"vgpu", nullptr},
                         {"gpu", 0},
                         {"memory_bytes", 67108864},
                         {"contexts", nullptr},
                         {"compute_busy_us", nullptr},
                         {"window", nullptr},
                         {"gate_wait_us", nullptr},
                         {"state", nullptr},
                         {"oom_errors", nullptr},
                         {"managed", false},
                         {"adopted", false},
                         {"channels", nullptr},
                         {"frozen", Json::array()},
                         {"enforce", "none"},
                         {"complete", false}};

TEST(Output, UnmanagedProcessesComeLast) {
  EXPECT_EQ(ProcessTable(Json::array({kUnmanaged, With(kProcess, "managed", true)})).Text(false),
            "    PID  PROGRAM  VGPU   GPU  STATE      MEMORY  GPU TIME  WAITED  OOM\n"
            "   4711  python   train    1  active      2 GiB     1.5 s    2 ms    2\n"
            "1234567  Xorg     -        0  unmanaged  64 MiB         -       -    -\n");
}

TEST(Output, FrozenComesBeforeEveryOtherState) {
  const Json by = Json::array({"operator", "policy"});
  for (const Json& process : {kProcess, kUnmanaged, With(kUnmanaged, "state", "idle")}) {
    EXPECT_NE(ProcessTable(Json::array({With(process, "frozen", by)})).Text(false).find("  frozen  "),
              std::string::npos);
  }
}

TEST(Output, AnAdoptedProcessIsNoLongerUnmanaged) {
  const Json adopted = With(With(kUnmanaged, "adopted", true), "vgpu", "train");
  for (const bool managed : {false, true}) {
    const std::string text = ProcessTable(Json::array({With(adopted, "managed", managed)})).Text(false);
    EXPECT_NE(text.find("train"), std::string::npos) << text;
    EXPECT_EQ(text.find("unmanaged"), std::string::npos) << text;
  }
}

TEST(Output, ProcessesFitATerminal) {
  Json busy = With(With(kProcess, "name", "tessera-tenant"), "vgpu", "inference");
  busy = With(With(busy, "compute_busy_us", 7'500'000'000), "memory_bytes", 25'232'932'864);
  busy = With(With(busy, "gate_wait_us", 59'900'000), "oom_errors", 123);
  std::istringstream lines(ProcessTable(Json::array({busy, kUnmanaged})).Text(false, 80));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(std::ranges::count_if(line, [](unsigned char c) { return (c & 0xc0) != 0x80; }), 80) << line;
  }
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
            "GPU  NAME  MEMORY   USED  PROMISED  BUSY %  REQUESTED %  VGPUS  PROCESSES  CONTROL  UUID\n"
            "  0  Soft  16 GiB  1 GiB       0 B      50           50      3          2  -        GPU-1\n");
  const Json by_gate = With(gpu, "control", {{"by", "gate"}, {"why", "the driver is too old"}});
  const Json by_channels = With(gpu, "control", {{"by", "channels"}, {"why", ""}, {"driver_calls", 12}});
  EXPECT_NE(GpuTable(Json::array({by_gate})).Text(false).find("  gate     GPU-1\n"), std::string::npos);
  EXPECT_NE(GpuTable(Json::array({by_channels})).Text(false).find("  channels  GPU-1\n"), std::string::npos);
  EXPECT_NE(GpuNotes(Json::array({by_channels, by_gate})).find("  GPU 0: the driver is too old\n"), std::string::npos);
  EXPECT_EQ(GpuNotes(Json::array({by_channels, gpu, Json(), With(gpu, "control", "gate")})), "");
}

TEST(Output, GpusTellWhereTheRestOfTheMemoryIs) {
  const Json swap = {{"max_bytes", 8589934592}, {"pool_used_bytes", 1073741824}, {"decision", "turns of 4.1 s"}};
  Json with_file = swap;
  with_file["file_bytes"] = 4294967296;
  with_file["file_used_bytes"] = 2147483648;
  EXPECT_NE(
      GpuNotes(Json::array({{{"index", 1}, {"swap", with_file}}})).find("in use, 2 GiB of 4 GiB in the file; turns"),
      std::string::npos);
  with_file["file_error"] = "Input/output error";
  EXPECT_NE(GpuNotes(Json::array({{{"index", 1}, {"swap", with_file}}})).find("(it takes no more: Input/output error)"),
            std::string::npos);
  EXPECT_EQ(GpuNotes(Json::array({{{"index", 1}, {"swap", swap}}, {{"index", 0}, {"swap", nullptr}}})),
            "\nWhat does not fit lies in host memory:\n  GPU 1: 1 GiB of at most 8 GiB in use; turns of 4.1 s\n");
}

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
                    {"token", "held"},
                    {"processes", {4711, 4712}}};

TEST(Output, VgpusAsATable) {
  EXPECT_EQ(VgpuTable(Json::array({kVgpu})).Text(false),
            "NAME   GPU  MEMORY    MAX     PEAK  COMPUTE  WEIGHT  PRIORITY  NOW %  TOKEN  PROCESSES\n"
            "train    0   1 GiB  2 GiB  1.5 GiB    30:60     100         2   41.3  held           2\n");
  EXPECT_NE(VgpuTable(Json::array({With(kVgpu, "frozen", {"policy"})})).Text(false).find("  frozen  "),
            std::string::npos);
}

TEST(Output, OneVgpuInLines) {
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
  EXPECT_NE(VgpuText(With(swapped, "memory_swap_max_bytes", 2147483648)).find("1 GiB of at most 2 GiB\n"),
            std::string::npos);
  const std::string steered =
      VgpuText(With(With(kVgpu, "slice_us", 3500), "frozen", Json::array({"operator", "policy"})));
  EXPECT_NE(steered.find("compute slice     3 ms\n"), std::string::npos) << steered;
  EXPECT_NE(steered.find("frozen            by operator, policy\n"), std::string::npos) << steered;
}

TEST(Output, AnswersOfAnotherVersionDoNotCrash) {
  const Json odd = {{"name", 5}, {"gpu", "zero"}, {"memory_max_bytes", -1}, {"processes", nullptr}, {"token", true}};
  EXPECT_NE(VgpuText(odd).find("processes         none"), std::string::npos);
  EXPECT_NE(VgpuTable(Json::array({odd, Json(), Json(3)})).Text(false), "");
  const Json odder = {{"pid", "x"}, {"managed", 3}, {"frozen", "operator"}, {"control", 5}, {"state", 7}};
  EXPECT_NE(ProcessTable(Json::array({odder, Json(), Json(3), Json("x")})).Text(false), "");
  EXPECT_EQ(ProcessTable(Json()).Text(false), ProcessTable(Json::array()).Text(false));
  EXPECT_NE(GpuTable(Json::array({odder, Json()})).Text(false), "");
  EXPECT_EQ(GpuNotes(Json::array({odder, Json()})), "");
}

TEST(Output, BarsFillFromTheLeft) {
  EXPECT_EQ(Bar(0, 4), "    ");
  EXPECT_EQ(Bar(50, 4), "██  ");
  EXPECT_EQ(Bar(100, 4), "████");
  EXPECT_EQ(Bar(150, 4), "████");
  EXPECT_EQ(Bar(12.5, 4), "▌   ");
}

}  // namespace
}  // namespace tessera::cli
