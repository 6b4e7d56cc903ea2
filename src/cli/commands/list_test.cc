#include "cli/commands/list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands/listing.h"
#include "cli/testing/json_with.h"

namespace tessera::cli {
using client::Json;

namespace {

const Json kProcess = {{"pid", 4711},
                       {"name", "python"},
                       {"vgpu", "train"},
                       {"gpu", 1},
                       {"memory_bytes", 2147483648},
                       {"compute_busy_us", 1500000},
                       {"compute_waited_us", 2000},
                       {"oom_errors", 2},
                       {"state", "active"}};

TEST(List, ProcessesAsATable) {
  EXPECT_EQ(ProcessTable(Json::array({kProcess})).Text(false),
            " PID  PROGRAM  VGPU   GPU  STATE   MEMORY  GPU TIME  WAITED  OOM\n"
            "4711  python   train    1  active   2 GiB     1.5 s    2 ms    2\n");
}

TEST(List, WhatIsSwappedHasAColumnWhereThereIsAny) {
  const Json none = With(kProcess, "memory_swapped_bytes", 0);
  EXPECT_EQ(ProcessTable(Json::array({none})).Text(false).find("SWAPPED"), std::string::npos);
  const Json some = With(kProcess, "memory_swapped_bytes", 1073741824);
  EXPECT_EQ(ProcessTable(Json::array({some, kProcess})).Text(false),
            " PID  PROGRAM  VGPU   GPU  STATE   MEMORY  SWAPPED  GPU TIME  WAITED  OOM\n"
            "4711  python   train    1  active   2 GiB    1 GiB     1.5 s    2 ms    2\n"
            "4711  python   train    1  active   2 GiB        -     1.5 s    2 ms    2\n");
}

TEST(List, ProgramsThatWorkOnHostMemoryAreNoted) {
  EXPECT_EQ(ProcessNotes(Json::array({With(kProcess, "memory_on_host_told_us", nullptr), kProcess})), "");
  const Json slow = With(With(kProcess, "memory_on_host_told_us", 75'000'000), "memory_used_on_host_bytes", 3221225472);
  EXPECT_EQ(ProcessNotes(Json::array({slow})),
            "\nSlow, because they work on host memory:\n"
            "  4711 (python): 3 GiB of what it uses is in host memory, for 1 min 15 s of its work\n");
}

TEST(List, ProgramsWithStrandedMemoryAreNoted) {
  EXPECT_EQ(ProcessNotes(Json::array({With(kProcess, "memory_stranded_bytes", 0), kProcess})), "");
  EXPECT_EQ(ProcessNotes(Json::array({With(kProcess, "memory_stranded_bytes", 134217728)})),
            "\nIn host memory until they free it or end, because no mover has it:\n"
            "  4711 (python): 128 MiB\n");
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
                         {"compute_waited_us", nullptr},
                         {"state", nullptr},
                         {"oom_errors", nullptr},
                         {"managed", false},
                         {"adopted", false},
                         {"channels", nullptr},
                         {"frozen", Json::array()},
                         {"enforce", "none"},
                         {"complete", false}};

TEST(List, UnmanagedProcessesComeLast) {
  EXPECT_EQ(ProcessTable(Json::array({kUnmanaged, With(kProcess, "managed", true)})).Text(false),
            "    PID  PROGRAM  VGPU   GPU  STATE      MEMORY  GPU TIME  WAITED  OOM\n"
            "   4711  python   train    1  active      2 GiB     1.5 s    2 ms    2\n"
            "1234567  Xorg     -        0  unmanaged  64 MiB         -       -    -\n");
}

TEST(List, FrozenComesBeforeEveryOtherState) {
  const Json by = Json::array({"operator", "policy"});
  for (const Json& process : {kProcess, kUnmanaged, With(kUnmanaged, "state", "idle")}) {
    EXPECT_NE(ProcessTable(Json::array({With(process, "frozen", by)})).Text(false).find("  frozen  "),
              std::string::npos);
  }
}

TEST(List, AnAdoptedProcessIsNoLongerUnmanaged) {
  const Json adopted = With(With(kUnmanaged, "adopted", true), "vgpu", "train");
  for (const bool managed : {false, true}) {
    const std::string text = ProcessTable(Json::array({With(adopted, "managed", managed)})).Text(false);
    EXPECT_NE(text.find("train"), std::string::npos) << text;
    EXPECT_EQ(text.find("unmanaged"), std::string::npos) << text;
  }
}

TEST(List, ProcessesFitATerminal) {
  Json busy = With(With(kProcess, "name", "tessera-tenant"), "vgpu", "inference");
  busy = With(With(busy, "compute_busy_us", 7'500'000'000), "memory_bytes", 25'232'932'864);
  busy = With(With(busy, "compute_waited_us", 59'900'000), "oom_errors", 123);
  std::istringstream lines(ProcessTable(Json::array({busy, kUnmanaged})).Text(false, 80));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(std::ranges::count_if(line, [](unsigned char c) { return (c & 0xc0) != 0x80; }), 80) << line;
  }
}

TEST(List, NamesOfProgramsDoNotControlTheTerminal) {
  const Json hostile = With(kUnmanaged, "name",
                            "\033]0;owned\a\033[2J\r\n\xc2\x9b"
                            "1m\x7f");
  const std::string text = ProcessTable(Json::array({hostile})).Text(false);
  EXPECT_NE(text.find("?]0;owned??[2J????1m?"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
}

TEST(List, NothingIsATableOfTitles) {
  EXPECT_EQ(ProcessTable(Json::array()).Text(false), "PID  PROGRAM  VGPU  GPU  STATE  MEMORY  GPU TIME  WAITED  OOM\n");
}

TEST(List, GpusAsATable) {
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

TEST(List, GpusTellWhereTheRestOfTheMemoryIs) {
  const Json swap = {{"max_bytes", 8589934592}, {"pool_used_bytes", 1073741824}, {"decision", "turns of 4.1 s"}};
  Json with_file = swap;
  with_file["file_bytes"] = 4294967296;
  with_file["file_used_bytes"] = 2147483648;
  EXPECT_NE(
      GpuNotes(Json::array({{{"index", 1}, {"swap", with_file}}})).find("in use, 2 GiB of 4 GiB in the file; turns"),
      std::string::npos);
  with_file["file_error"] = "Input/output error";
  EXPECT_NE(GpuNotes(Json::array({{{"index", 1}, {"swap", with_file}}})).find("(no more writes: Input/output error)"),
            std::string::npos);
  EXPECT_EQ(GpuNotes(Json::array({{{"index", 1}, {"swap", swap}}, {{"index", 0}, {"swap", nullptr}}})),
            "\nHost memory for swapping:\n  GPU 1: 1 GiB of at most 8 GiB in use; turns of 4.1 s\n");
  for (const auto& [size, goal, text] : {std::tuple(3, 3, "in use, 2 GiB prepared; turns"),
                                         {3, 5, "2 GiB of 4 GiB prepared"},
                                         {1, 3, "in use, 0 B of 2 GiB prepared"},
                                         {3, 1, "in use, 2 GiB prepared;"}}) {
    Json prepared = swap;
    prepared["pool_bytes"] = size * 1073741824ull;
    prepared["pool_goal_bytes"] = goal * 1073741824ull;
    EXPECT_NE(GpuNotes(Json::array({{{"index", 1}, {"swap", prepared}}})).find(text), std::string::npos) << text;
  }
}

TEST(List, AFailedGpuIsNamed) {
  const Json well = {{"index", 0}, {"health", {{"failed", false}, {"why", nullptr}, {"last", nullptr}}}};
  const Json errors = {
      {"index", 1},
      {"health", {{"failed", false}, {"xid_errors", 3}, {"ecc_errors", 0}, {"last", "Xid 31 (a fault)"}}}};
  const Json failed = {{"index", 2}, {"health", {{"failed", true}, {"why", "the GPU is lost"}, {"last", "Xid 79"}}}};
  EXPECT_EQ(GpuNotes(Json::array({well})), "");
  EXPECT_EQ(GpuNotes(Json::array({well, errors, failed})),
            "\nFailed; reset the GPU, then restart the daemon:\n  GPU 2: the GPU is lost\n"
            "\nErrors that the driver reported:\n  GPU 1: 3 Xid and 0 ECC errors; the last: Xid 31 (a fault)\n");
  EXPECT_EQ(State(With(With(kUnmanaged, "state", "active"), "gpu_failed", true)), "failed");
}

TEST(List, AnswersOfAnotherVersionDoNotCrash) {
  const Json odd = {{"pid", "x"}, {"managed", 3}, {"frozen", "operator"}, {"control", 5}, {"state", 7}};
  EXPECT_NE(ProcessTable(Json::array({odd, Json(), Json(3), Json("x")})).Text(false), "");
  EXPECT_EQ(ProcessTable(Json()).Text(false), ProcessTable(Json::array()).Text(false));
  EXPECT_NE(GpuTable(Json::array({odd, Json()})).Text(false), "");
  EXPECT_EQ(GpuNotes(Json::array({odd, Json()})), "");
}

}  // namespace
}  // namespace tessera::cli
