// The text that Prometheus gets. Its own parser checks it in tests/e2e/test_metrics.py.
#include "face/text/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/size.h"

namespace tessera::face {
namespace {

using testing::HasSubstr;
using testing::Not;

server::WholeReport Report() {
  server::WholeReport report;
  server::GpuReport gpu{.index = 1, .uuid = "GPU-1", .name = "Fake \"GPU\"", .memory_total = 10 * kGiB};
  gpu.freezes = 3;
  gpu.freeze_times.Note(150 * kMicrosecond);
  gpu.freeze_times.Note(600 * kMicrosecond);
  gpu.freeze_times.Note(20 * kSecond);
  gpu.moving.suspensions = {4, 3, 2, 1};
  gpu.moving.idle_suspensions = {2, 2, 1, 0};
  gpu.moving.vgpus_moved = 6;
  gpu.moving.Note(server::SuspensionPhase::kSaves, kSecond);
  gpu.swap = server::SwapReport{.max = kGiB, .mover = 77, .mode = "turns"};
  gpu.swap->moves_in.Note(kSecond);
  report.gpus = {gpu};
  server::VGpuReport vgpu{.name = "team", .gpu = 1};
  vgpu.compute_request_pct = 30;
  vgpu.moved = {.out = 5, .in = 7, .time_us = 1'500'000};
  vgpu.memory_pressure.avg10 = 12.5;
  vgpu.frozen = {"move"};
  vgpu.state = "waiting";
  report.vgpus = {vgpu};
  server::ProcessReport mine{.pid = 4, .name = "a", .vgpu = "team", .shim = true};
  mine.gpu = 1;
  mine.submissions = 9;
  mine.suspended_to = "memory";
  server::ProcessReport other{.pid = 5, .name = "b"};
  other.gpu = 1;
  server::ProcessReport mover{.pid = 77, .name = "tessera-mover"};
  mover.gpu = 1;
  report.processes = {mine, other, mover};
  server::SpaceReport space{.name = "a", .gpu = 1, .state = "ready"};
  space.vgpus = {"one", "two"};
  space.mode = "in_turns";
  space.mode_gain = 0.75;
  report.spaces = {space, {.name = "b", .gpu = 0, .state = "fault"}};
  return report;
}

std::string Text(MetricsFormat format = MetricsFormat::kPrometheus) { return WriteMetrics(Report(), format); }

TEST(Metrics, SayWhatTheReportsSay) {
  const std::string text = Text();
  for (const char* line : {"tessera_gpu_info{gpu=\"1\",uuid=\"GPU-1\",name=\"Fake \\\"GPU\\\"\"} 1\n",
                           "tessera_gpu_memory_total_bytes{gpu=\"1\"} 10737418240\n",
                           "tessera_driver_calls_total{call=\"freeze\"} 3\n",
                           "tessera_suspensions_total{result=\"resumed\"} 3\n",
                           "tessera_suspensions_total{result=\"lost\"} 1\n",
                           "tessera_idle_suspensions_total{result=\"failed\"} 1\n",
                           "tessera_migrations_total{result=\"moved\"} 6\n",
                           "tessera_migrations_total{result=\"failed\"} 0\n",
                           "tessera_suspension_seconds_count{phase=\"saves\"} 1\n",
                           "tessera_suspension_seconds_count{phase=\"leaves\"} 0\n",
                           "tessera_process_suspended{pid=\"4\",vgpu=\"team\",gpu=\"1\"} 1\n",
                           "tessera_gpu_memory_turns{gpu=\"1\"} 1\n",
                           "tessera_gpu_steered{gpu=\"1\"} 0\n",
                           "tessera_gpu_unmanaged_processes{gpu=\"1\"} 1\n",
                           "tessera_vgpu_compute_request_ratio{vgpu=\"team\",gpu=\"1\"} 0.3\n",
                           "tessera_vgpu_moved_bytes_total{vgpu=\"team\",gpu=\"1\",direction=\"in\"} 7\n",
                           "tessera_vgpu_moving_seconds_total{vgpu=\"team\",gpu=\"1\"} 1.5\n",
                           "tessera_vgpu_memory_pressure_ratio{vgpu=\"team\",gpu=\"1\",window=\"10s\"} 0.125\n",
                           "tessera_vgpu_frozen{vgpu=\"team\",gpu=\"1\",reason=\"move\"} 1\n",
                           "tessera_vgpu_frozen{vgpu=\"team\",gpu=\"1\",reason=\"policy\"} 0\n",
                           "tessera_vgpu_state{vgpu=\"team\",gpu=\"1\",state=\"waiting\"} 1\n",
                           "tessera_space_ready{space=\"a\",gpu=\"1\"} 1\n",
                           "tessera_space_ready{space=\"b\",gpu=\"0\"} 0\n",
                           "tessera_space_vgpus{space=\"a\",gpu=\"1\"} 2\n",
                           "tessera_space_in_turns{space=\"a\",gpu=\"1\"} 1\n",
                           "tessera_space_at_once_gain_ratio{space=\"a\",gpu=\"1\"} 0.75\n",
                           "tessera_space_in_turns{space=\"b\",gpu=\"0\"} 0\n",
                           "tessera_process_submissions_total{pid=\"4\",vgpu=\"team\",gpu=\"1\"} 9\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("pid=\"5\""))) << "who is in no vGPU is counted only";
  EXPECT_THAT(text, Not(HasSubstr("tessera_vgpu_memory_swap_max_bytes{"))) << "there is no such maximum";
}

TEST(Metrics, GoalsAreOfVGpusThatHaveThem) {
  server::WholeReport report = Report();
  server::VGpuReport latency{.name = "fast", .goal = "p99=20ms"}, speed{.name = "half", .goal = "speed=50%"},
      fresh{.name = "fresh", .goal = "p99=20ms"};
  latency.bursts.count = 3;
  latency.bursts.lengths.Note(25 * kMillisecond);
  latency.bursts.attained_time = 25 * kMillisecond;
  latency.bursts.violations = 1;
  latency.bursts.verdict = sched::Verdict::Kind::kMissed;
  speed.bursts.attained_pct = 51;
  speed.bursts.verdict = sched::Verdict::Kind::kTight;
  for (const auto& vgpu : {latency, speed, fresh}) report.vgpus.push_back(vgpu);
  const std::string text = WriteMetrics(report, MetricsFormat::kPrometheus);
  for (const char* line :
       {"tessera_vgpu_bursts_total{vgpu=\"fast\",gpu=\"0\"} 3\n",
        "tessera_vgpu_bursts_total{vgpu=\"team\",gpu=\"1\"} 0\n",
        "tessera_vgpu_burst_seconds_bucket{vgpu=\"fast\",gpu=\"0\",le=\"0.05\"} 1\n",
        "tessera_vgpu_burst_seconds_sum{vgpu=\"fast\",gpu=\"0\"} 0.025\n",
        "tessera_vgpu_goal_attained{vgpu=\"fast\",gpu=\"0\"} 0.025\n",
        "tessera_vgpu_goal_attained{vgpu=\"half\",gpu=\"0\"} 0.51\n",
        "tessera_vgpu_goal_violations_total{vgpu=\"fast\",gpu=\"0\"} 1\n",
        "tessera_vgpu_goal_violations_total{vgpu=\"fresh\",gpu=\"0\"} 0\n",
        "tessera_vgpu_goal_met{vgpu=\"fast\",gpu=\"0\"} 0\n", "tessera_vgpu_goal_met{vgpu=\"half\",gpu=\"0\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
  for (const char* line :
       {"_attained{vgpu=\"fresh\"", "_met{vgpu=\"fresh\"", "_violations_total{vgpu=\"team\"", "_met{vgpu=\"team\""})
    EXPECT_THAT(text, Not(HasSubstr(line)));
}

TEST(Metrics, BucketsOfHistogramsAreSummedUp) {
  const std::string text = Text();
  for (const char* line :
       {"tessera_freeze_seconds_bucket{le=\"0.0001\"} 0\n", "_bucket{le=\"0.0002\"} 1\n", "_bucket{le=\"0.0005\"} 1\n",
        "_bucket{le=\"0.001\"} 2\n", "_bucket{le=\"10\"} 2\n", "_bucket{le=\"+Inf\"} 3\n",
        "tessera_freeze_seconds_count 3\n", "tessera_freeze_seconds_sum 20.00075\n",
        "tessera_gpu_move_seconds_bucket{gpu=\"1\",direction=\"in\",le=\"1\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Metrics, AFormatForEach) {
  EXPECT_EQ(ChooseFormat(""), MetricsFormat::kPrometheus);
  EXPECT_EQ(ChooseFormat("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), MetricsFormat::kOpenMetrics);
  const std::string plain = Text(), open = Text(MetricsFormat::kOpenMetrics);
  EXPECT_THAT(plain, HasSubstr("# TYPE tessera_driver_calls_total counter\n"));
  EXPECT_THAT(open, HasSubstr("# TYPE tessera_driver_calls counter\n"));
  EXPECT_THAT(open, HasSubstr("\ntessera_driver_calls_total{"));
  EXPECT_THAT(open, HasSubstr("# TYPE tessera_build info\n"));
  EXPECT_THAT(open, HasSubstr("# UNIT tessera_freeze_seconds seconds\n"));
  EXPECT_TRUE(open.ends_with("\n# EOF\n"));
  EXPECT_THAT(plain, Not(HasSubstr("# EOF")));
}

TEST(Metrics, ALabelMayBeAnything) {
  server::WholeReport report = Report();
  report.gpus[0].name = "back\\slash \"quote\" new\nline \xff\x01";
  EXPECT_THAT(WriteMetrics(report, MetricsFormat::kPrometheus),
              HasSubstr("name=\"back\\\\slash \\\"quote\\\" new\\nline ??\""));
  report.gpus[0].name = "M\u00fcnchen \u0085 \xc3";
  EXPECT_THAT(WriteMetrics(report, MetricsFormat::kPrometheus), HasSubstr("name=\"M\u00fcnchen ? ?\""));
}

TEST(Metrics, AVGpusSeriesCarryItsLabels) {
  server::WholeReport report = Report();
  report.vgpus[0].labels = {{"namespace", "ml"}, {"pod", "a \"b\""}};
  report.vgpus[0].waits.Note(kMillisecond);
  report.vgpus.push_back({.name = "plain"});
  std::istringstream lines(WriteMetrics(report, MetricsFormat::kPrometheus));
  int of_team = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool team = line.starts_with("tessera_vgpu_") && line.find("{vgpu=\"team\",") != line.npos;
    EXPECT_EQ(team, line.find("namespace=\"ml\",pod=\"a \\\"b\\\"\"") != line.npos) << line;
    of_team += team;
  }
  EXPECT_GT(of_team, 50);
}

// Else a series could have a label twice.
TEST(Metrics, NoVGpuMayHaveALabelOfTheirs) {
  std::istringstream rows(MetricsReference());
  int labels = 0;
  for (std::string row, cell; std::getline(rows, row);) {
    std::istringstream cells(row);
    for (int i = 0; i < 4; ++i) std::getline(cells, cell, '|');
    if (!row.starts_with("| `")) continue;
    std::istringstream names(cell);
    for (std::string name; names >> name; ++labels) {
      if (name.ends_with(',')) name.pop_back();
      EXPECT_FALSE(server::CheckLabels({{name, "x"}})) << name;
    }
  }
  EXPECT_GT(labels, 100);
}

TEST(Metrics, EachFamilyIsThereOnceWithAllOfItsSamples) {
  std::istringstream lines(Text());
  std::set<std::string> seen;
  std::string line, current;
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(current).second) << current;
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(current)) << line << " stands under " << current;
    }
  }
  EXPECT_GT(seen.size(), 50u);
}

// Without a GPU, a vGPU or a program there are families without samples.
TEST(Metrics, NothingIsNoError) {
  EXPECT_THAT(WriteMetrics({}, MetricsFormat::kOpenMetrics), HasSubstr("tessera_build_info{version="));
}

// TESSERA_UPDATE_DOCS=1 writes it.
TEST(Metrics, TheReferenceIsOfThisTable) {
  const std::string path = TESSERA_DOCS "/reference/metrics.md";
  if (std::getenv("TESSERA_UPDATE_DOCS")) std::ofstream(path) << MetricsReference();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), MetricsReference())
      << "TESSERA_UPDATE_DOCS=1 face_test --gtest_filter='Metrics.*' makes it anew";
}

}  // namespace
}  // namespace tessera::face
