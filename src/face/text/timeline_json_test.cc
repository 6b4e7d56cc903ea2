#include "face/text/timeline_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/model/freeze_reason.h"
#include "server/time/time_server.h"

namespace tessera::face {
namespace {

using nlohmann::json;
using server::FreezeReason;
using server::TraceCopy;
using server::TraceKind;
using server::TraceRecord;
using Standing = server::Standing;

constexpr Nanos kNow = 1000 * kSecond;
constexpr Nanos kPast = 5 * kSecond;  // the times below are from its beginning

// A vGPU that did `before` for the time `took` until `at`.
TraceRecord Did(std::uint64_t vgpu, Nanos at, Nanos took, Standing before, Standing now) {
  return {.at = kNow - kPast + at,
          .took = took,
          .value = static_cast<std::uint64_t>(now),
          .vgpu = vgpu,
          .kind = TraceKind::kStanding,
          .old_value = static_cast<std::uint32_t>(before)};
}

TraceRecord Freeze(Nanos at, FreezeReason reasons) {
  return {.at = kNow - kPast + at,
          .value = static_cast<std::uint64_t>(reasons),
          .pid = 42,
          .kind = Any(reasons) ? TraceKind::kFrozen : TraceKind::kThawed};
}

json Written(const std::vector<TraceRecord>& records) {
  return json::parse(WriteTimeline(
      {.records = records, .now = kNow, .wall = 50 * kSecond, .vgpus = {{7, "<b>seven"}, {8, "eight"}}, .programs = {}},
      kPast));
}

TEST(Timeline, SaysHowMuchOfEachSecondAVGpuRanAndWaited) {
  const json timeline = Written({Did(7, 500 * kMillisecond, 700 * kMillisecond, Standing::kWaiting, Standing::kRunning),
                                 Did(7, 2250 * kMillisecond, 1750 * kMillisecond, Standing::kRunning, Standing::kIdle),
                                 Did(7, 4800 * kMillisecond, 0, Standing::kIdle, Standing::kRunning)});
  EXPECT_EQ(timeline["begin_us"], 1045'000'000);
  EXPECT_EQ(timeline["steps"], 5);
  ASSERT_EQ(timeline["vgpus"].size(), 1u);
  EXPECT_EQ(timeline["vgpus"][0]["name"], "<b>seven");
  EXPECT_EQ(timeline["vgpus"][0]["ran_pct"], json({50, 100, 25, 0, 20})) << "the last period lasts still";
  EXPECT_EQ(timeline["vgpus"][0]["waited_pct"], json({50, 0, 0, 0, 0})) << "what was before is cut off";
}

TEST(Timeline, ThoseThatRunBesideEachOtherGetEqualParts) {
  const json timeline = Written({Did(7, 2 * kSecond, 2 * kSecond, Standing::kRunning, Standing::kIdle),
                                 Did(8, 3 * kSecond, 2 * kSecond, Standing::kRunning, Standing::kIdle)});
  EXPECT_EQ(timeline["vgpus"][0]["ran_pct"], json({100, 50, 0, 0, 0}));
  EXPECT_EQ(timeline["vgpus"][1]["ran_pct"], json({0, 50, 100, 0, 0}));
}

TEST(Timeline, LeavesOutTheSchedulersOwnFreezes) {
  const auto both = FreezeReason::kOperator | FreezeReason::kPolicy;
  const json spans =
      Written({Freeze(kSecond, FreezeReason::kPolicy), Freeze(kSecond + 1, FreezeReason::kNone),
               Freeze(2 * kSecond, FreezeReason::kOperator), Freeze(3 * kSecond, both),
               Freeze(4 * kSecond, FreezeReason::kPolicy), Freeze(4 * kSecond + 1, FreezeReason::kMove)})["spans"];
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["why"], json({"operator"}));
  EXPECT_EQ(spans[0]["begin_us"], 1047'000'000);
  EXPECT_EQ(spans[0]["end_us"], 1049'000'000);
  EXPECT_EQ(spans[0]["pid"], 42);
  EXPECT_EQ(spans[1]["why"], json({"move"}));
  EXPECT_EQ(spans[1]["end_us"], 1050'000'000) << "it lasts still";
}

TEST(Timeline, HasMovesAndTheLastSpansOnly) {
  std::vector<TraceRecord> records;
  for (int i = 0; i < 1200; ++i)
    records.push_back({.at = kNow - kPast + i * kMillisecond,
                       .took = kMillisecond,
                       .value = static_cast<std::uint64_t>(i),
                       .pid = 42,
                       .kind = i % 2 ? TraceKind::kMovedIn : TraceKind::kMovedOut});
  const json spans = Written(records)["spans"];
  ASSERT_EQ(spans.size(), 1000u);
  EXPECT_EQ(spans[0]["what"], "out");
  EXPECT_EQ(spans[0]["bytes"], 200);
  EXPECT_EQ(spans[999]["what"], "in");
}

}  // namespace
}  // namespace tessera::face
