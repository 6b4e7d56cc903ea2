#include "face/text/trace_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/channels/channel_server.h"
#include "server/model/suspension_state.h"
#include "server/time/time_server.h"

namespace tessera::face {
namespace {

using nlohmann::json;
using server::TraceCopy;
using server::TraceKind;
using server::TraceRecord;
using server::WaitReason;
using Standing = server::Standing;

constexpr Nanos kBegin = 1000 * kSecond;

TraceRecord Stands(Nanos at, Nanos took, Standing before, WaitReason why_before, Standing now,
                   WaitReason why = WaitReason::kNone) {
  return {.at = kBegin + at,
          .took = took,
          .value = static_cast<std::uint64_t>(now),
          .other = static_cast<std::uint64_t>(why),
          .vgpu = 7,
          .kind = TraceKind::kStanding,
          .old_value = static_cast<std::uint32_t>(before),
          .old_other = static_cast<std::uint32_t>(why_before)};
}

// The trace's entries of a kind ("X", "C" …), in order.
std::vector<json> Shown(const TraceCopy& trace, const std::string& kind,
                        const std::vector<server::Event>& events = {}) {
  const json all = json::parse(WriteTrace(trace, events));
  std::vector<json> shown;
  for (const json& each : all["traceEvents"]) {
    if (each["ph"] == kind) shown.push_back(each);
  }
  return shown;
}

TEST(TraceJson, ShowsWhatAVGpuDidAndWhy) {
  TraceCopy trace{.now = kBegin + 100 * kMillisecond, .wall = 50 * kSecond};
  trace.vgpus[7] = "team-\"a\"";
  trace.records = {
      Stands(10 * kMillisecond, 4 * kMillisecond, Standing::kIdle, WaitReason::kNone, Standing::kRunning),
      Stands(30 * kMillisecond, 20 * kMillisecond, Standing::kRunning, WaitReason::kNone, Standing::kWaiting,
             WaitReason::kLimit),
      Stands(60 * kMillisecond, 30 * kMillisecond, Standing::kWaiting, WaitReason::kLimit, Standing::kRunning),
  };
  const auto spans = Shown(trace, "X");
  ASSERT_EQ(spans.size(), 3u) << "that it is idle is not shown";
  EXPECT_EQ(spans[0]["name"], "runs");
  EXPECT_EQ(spans[0]["ts"].get<double>(), 1'050'010'000.0);
  EXPECT_EQ(spans[0]["dur"].get<double>(), 20'000.0);
  EXPECT_EQ(spans[1]["name"], "waits: limit");
  EXPECT_EQ(spans[1]["args"]["why"], "limit");
  EXPECT_EQ(spans[2]["name"], "runs") << "to the end of the trace";
  EXPECT_EQ(spans[2]["dur"].get<double>(), 40'000.0);
  const auto counters = Shown(trace, "C");
  std::vector<int> waiting;
  for (const json& counter : counters) waiting.push_back(counter["args"]["waiting"]);
  EXPECT_EQ(waiting, (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(Shown(trace, "M")[0]["args"]["name"], "team-\"a\"");
}

TEST(TraceJson, ShowsWhatDidNotChangeInThatTime) {
  TraceCopy trace{.now = kBegin};
  trace.records = {Stands(0, kSecond, Standing::kRunning, WaitReason::kNone, Standing::kIdle)};
  const auto spans = Shown(trace, "X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["name"], "runs");
  EXPECT_EQ(spans[0]["dur"].get<double>(), 1e6);
}

TEST(TraceJson, ShowsFreezesMovesAndCounters) {
  constexpr auto kPolicy = static_cast<std::uint64_t>(server::FreezeReason::kPolicy);
  constexpr auto kMove = static_cast<std::uint64_t>(server::FreezeReason::kMove);
  TraceCopy trace{.now = kBegin + 100};
  trace.programs[12] = "a\n\xff";
  trace.records = {
      {.at = kBegin + 10, .took = 5'000, .value = kPolicy, .pid = 12, .gpu = 1, .kind = TraceKind::kFrozen},
      {.at = kBegin + 20, .value = kPolicy | kMove, .pid = 12, .gpu = 1, .kind = TraceKind::kFrozen},
      {.at = kBegin + 50, .took = 7'000, .pid = 12, .gpu = 1, .kind = TraceKind::kThawed},
      {.at = kBegin + 60, .took = kSecond, .value = 54'000'000'000, .pid = 12, .gpu = 1, .kind = TraceKind::kMovedOut},
      {.at = kBegin + 70, .value = 100, .other = 200, .vgpu = 7, .gpu = 1, .kind = TraceKind::kMemory},
      {.at = kBegin + 80, .value = 20 * kMillisecond, .pid = 12, .gpu = 1, .kind = TraceKind::kSlice},
      {.at = kBegin + 90, .value = kMove, .pid = 13, .gpu = 1, .kind = TraceKind::kFrozen},
  };
  const auto spans = Shown(trace, "X", {{.number = 1, .time_us = 5, .gpu = 1, .vgpu = "a", .text = "\x1b"}});
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0]["name"], "frozen: policy");
  EXPECT_EQ(spans[0]["args"]["freeze_us"], 5);
  EXPECT_EQ(spans[1]["name"], "frozen: policy, move");
  EXPECT_EQ(spans[1]["args"]["thaw_us"], 7);
  EXPECT_EQ(spans[2]["name"], "memory out");
  EXPECT_EQ(spans[2]["args"]["GB_per_s"], 54.0);
  EXPECT_EQ(spans[3]["name"], "frozen: move") << "still, at the end";
  EXPECT_EQ(spans[3]["pid"], 2) << "GPU 1";
  const auto counters = Shown(trace, "C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0]["args"], (json{{"resident", 100}, {"swapped", 200}}));
  EXPECT_EQ(counters[1]["args"]["ms"], 20.0);
}

TEST(TraceJson, ShowsThePhasesOfSuspensions) {
  using enum server::SuspensionPhase;
  TraceCopy trace{.now = kBegin + 100 * kMillisecond};
  trace.programs[12] = "python";
  const auto enters = [&](Nanos at, Nanos took, server::SuspensionPhase before, server::SuspensionPhase phase,
                          std::uint32_t gpu, std::uint64_t bytes = 0) {
    trace.records.push_back({.at = kBegin + at * kMillisecond,
                             .took = took * kMillisecond,
                             .value = static_cast<std::uint64_t>(phase),
                             .other = bytes,
                             .vgpu = 7,
                             .pid = 12,
                             .gpu = gpu,
                             .kind = TraceKind::kSuspension,
                             .old_value = static_cast<std::uint32_t>(before)});
  };
  enters(10, 0, kNone, kLeaves, 0);
  enters(30, 20, kLeaves, kSuspended, 0, 5000);
  enters(60, 30, kSuspended, kRestores, 1);  // on another GPU by then
  auto spans = Shown(trace, "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["name"], "leaves");
  EXPECT_EQ(spans[0]["dur"], 20'000.0);
  EXPECT_EQ(spans[0]["args"], (json{{"pid", 12}, {"bytes", 5000}}));
  EXPECT_EQ(spans[1]["name"], "suspended");
  EXPECT_EQ(spans[1]["pid"], 2) << "GPU 1";
  EXPECT_EQ(spans[2]["name"], "restores");
  EXPECT_EQ(spans[2]["dur"], 40'000.0) << "to the end of the trace";
  EXPECT_EQ(Shown(trace, "M")[0]["args"]["name"], "suspension of process 12 python");
  enters(90, 30, kRestores, kNone, 1);
  spans = Shown(trace, "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[2]["dur"], 30'000.0) << "it is over";
  trace.records.clear();
  enters(100, 5000, kSuspended, kSuspended, 0);  // as the daemon completes a copy
  spans = Shown(trace, "X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["dur"], 5e6);
}

TEST(TraceJson, AnEmptyOneIsOneToo) {
  const json all = json::parse(WriteTrace({}, {}));
  EXPECT_TRUE(all["traceEvents"].empty());
  EXPECT_EQ(all["otherData"]["whole"], true);
}

}  // namespace
}  // namespace tessera::face
