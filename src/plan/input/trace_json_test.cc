#include "plan/input/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "plan/input/trace_use.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

// A trace from second 1000 to `end` of the wall clock.
std::string Trace(const std::string& events, double end = 1003) {
  return R"({"otherData":{"records":9,"whole":true,"begin_us":1000000000,"end_us":)" + std::to_string(end * 1e6) +
         R"(},"displayTimeUnit":"ms","traceEvents":[)" + events + "\n]}\n";
}

std::string Span(int track, const std::string& name, double at, double length) {
  return R"({"ph":"X","pid":1,"tid":)" + std::to_string(track) + R"(,"ts":)" + std::to_string(at * 1e6) + R"(,"dur":)" +
         std::to_string(length * 1e6) + R"(,"name":")" + name + R"(","args":{"why":"x"}})";
}

std::string Memory(const std::string& name, double at, std::uint64_t resident, std::uint64_t swapped) {
  return R"({"ph":"C","pid":1,"ts":)" + std::to_string(at * 1e6) + R"(,"name":"memory of )" + name +
         R"(","args":{"resident":)" + std::to_string(resident) + R"(,"swapped":)" + std::to_string(swapped) + "}}";
}

std::string Event(const std::string& name, double at) {
  return R"({"ph":"i","pid":1,"tid":0,"ts":)" + std::to_string(at * 1e6) + R"(,"s":"p","name":")" + name +
         R"(","args":{"text":"compute 0:100"}})";
}

const std::string kNames = R"({"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"low"}},)"
                           R"({"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":1}},)"
                           R"({"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"high"}},)"
                           R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"GPU 0"}})";

std::vector<float> DutyOf(const Tenant& tenant) {
  std::vector<float> duty;
  for (const UseSample& sample : tenant.samples) duty.push_back(sample.duty);
  return duty;
}

std::vector<std::uint64_t> MemoryOf(const Tenant& tenant) {
  std::vector<std::uint64_t> memory;
  for (const UseSample& sample : tenant.samples) memory.push_back(sample.memory);
  return memory;
}

TEST(TraceJson, DutyIsTheTimeWithWork) {
  const auto use =
      WorkloadOf("t.json", Trace(Span(1, "waits: turn", 999.5, 0.75) + "," + Span(1, "runs", 1000.25, 0.5) + "," +
                                 Span(1, "runs", 1001.5, 1) + "," + Span(2, "runs", 1002.5, 100) + "," +
                                 Span(1, "frozen: policy", 1000, 3) + "," + kNames));
  ASSERT_TRUE(use) << use.error().Text();
  EXPECT_EQ(use->title, "t.json");
  EXPECT_EQ(use->length, 3 * kSecond);
  EXPECT_EQ(use->interval, kSecond);
  ASSERT_THAT(use->tenants, SizeIs(2));
  EXPECT_EQ(use->tenants[0].name, "high");
  EXPECT_EQ(use->tenants[0].ran_on, "GPU 0");
  EXPECT_THAT(DutyOf(use->tenants[0]), ElementsAre(0, 0, 0.5));
  EXPECT_EQ(use->tenants[1].name, "low");
  EXPECT_THAT(DutyOf(use->tenants[1]), ElementsAre(0.75, 0.5, 0.5));
  EXPECT_THAT(use->notes, ElementsAre("duty is the time in which a vGPU had work, its waits for a turn included"));
}

TEST(TraceJson, MemoryIsTheMostOfEachIntervalOnTheGpuAndOff) {
  const auto use = WorkloadOf("t.json", Trace(Memory("low", 1000.5, 100, 0) + "," + Memory("low", 1001.2, 300, 50) +
                                              "," + Memory("low", 1001.8, 10, 0) + "," + Memory("low", 1003, 10, 0) +
                                              "," + Memory("idle", 1003, 7, 3) + "," + kNames));
  ASSERT_TRUE(use) << use.error().Text();
  ASSERT_THAT(use->tenants, SizeIs(2));
  // One whose memory never changed, and that had no work, was there as well: a trace ends with what all have.
  EXPECT_EQ(use->tenants[0].name, "idle");
  EXPECT_THAT(MemoryOf(use->tenants[0]), ElementsAre(10, 10, 10));
  EXPECT_THAT(DutyOf(use->tenants[0]), ElementsAre(0, 0, 0));
  EXPECT_THAT(MemoryOf(use->tenants[1]), ElementsAre(100, 350, 10));
  EXPECT_EQ(use->tenants[1].memory, 350u);
  EXPECT_THAT(use->notes[1], HasSubstr("how much memory 1 vGPU had at the begin is not in the trace"));
}

TEST(TraceJson, VGpusComeAndGo) {
  const auto use = WorkloadOf(
      "t.json", Trace(Memory("new", 1002.1, 100, 0) + "," + Span(1, "runs", 1000, 0.5) + "," +
                      Event("vgpu.created new 123", 1002) + "," + Event("vgpu.removed low", 1000.7) + "," +
                      Event("vgpu.removed again", 1000.7) + "," + Event("vgpu.created again", 1002) + "," + kNames));
  ASSERT_TRUE(use) << use.error().Text();
  ASSERT_THAT(use->tenants, SizeIs(3));
  EXPECT_EQ(use->tenants[0].name, "again");
  EXPECT_THAT(use->tenants[0].samples, SizeIs(3));
  EXPECT_EQ(use->tenants[1].name, "low");
  EXPECT_THAT(DutyOf(use->tenants[1]), ElementsAre(0.5));
  EXPECT_EQ(use->tenants[2].name, "new");
  ASSERT_THAT(use->tenants[2].samples, SizeIs(1));
  EXPECT_EQ(use->tenants[2].samples[0].at, 2 * kSecond);
  EXPECT_EQ(use->tenants[2].samples[0].memory, 100u);
}

TEST(TraceJson, ALongTraceHasLongerIntervals) {
  const auto use = WorkloadOf("t.json", Trace(Span(1, "runs", 1000, 1e6) + "," + kNames, 1'001'000));
  ASSERT_TRUE(use) << use.error().Text();
  EXPECT_THAT(use->interval, Gt(9 * kSecond));
  EXPECT_THAT(use->tenants[0].samples, SizeIs(testing::Le(TraceUse::kMostIntervals)));
  EXPECT_EQ(use->tenants[0].samples.back().duty, 1);
  EXPECT_EQ(WorkloadOf("t.json", Trace(Span(1, "runs", 1000, 1), 1000))->length, 1);
}

TEST(TraceJson, SameNamesOnTwoGpus) {
  const auto use = WorkloadOf(
      "t.json", Trace(R"({"ph":"C","pid":1,"ts":1000000000,"name":"memory of a","args":{"resident":1,"swapped":0}},)"
                      R"({"ph":"C","pid":2,"ts":1000000000,"name":"memory of a","args":{"resident":2,"swapped":0}})"));
  ASSERT_TRUE(use) << use.error().Text();
  ASSERT_THAT(use->tenants, SizeIs(2));
  EXPECT_EQ(use->tenants[0].name, "a");
  EXPECT_EQ(use->tenants[1].name, "a (GPU 1)");
  EXPECT_EQ(use->tenants[1].memory, 2u);
}

TEST(TraceJson, SaysThatPartOfTheTimeWasNotKept) {
  std::string text = Trace(Span(1, "runs", 1000, 1));
  text.replace(text.find("true"), 4, "false");
  EXPECT_THAT(WorkloadOf("t.json", text)->notes,
              ElementsAre(StartsWith("duty is"), "the daemon did not keep the begin of the time that was asked for"));
}

TEST(TraceJson, WhatIsWrong) {
  const auto error = [](const std::string& text) { return ErrorOf(WorkloadOf("t.json", text)); };
  EXPECT_EQ(error(""), "t.json is empty");
  EXPECT_THAT(error("{\"otherData\":"), StartsWith("t.json: no JSON, or cut off, at byte 14"));
  EXPECT_THAT(error(Trace(Span(1, "runs", 1000, 1)).substr(0, 150)), StartsWith("t.json: no JSON, or cut off"));
  EXPECT_THAT(error(std::string("\x7f"
                                "ELF\0",
                                5)),
              StartsWith("t.json: no JSON"));
  EXPECT_THAT(error("{}"), StartsWith("t.json is no trace of vGPUs; use a file of tessera trace"));
  EXPECT_THAT(error("[1,2]"), StartsWith("t.json is no trace of vGPUs"));
  EXPECT_THAT(error(R"({"traceEvents":[{"ph":"X","name":"kernel","ts":1,"dur":1,"pid":0,"tid":0}]})"),
              StartsWith("t.json is no trace of vGPUs"));  // of PyTorch's profiler
  EXPECT_THAT(error(std::string(1'000'000, '[')), StartsWith("t.json is no trace of vGPUs"));
  EXPECT_THAT(error(Trace("", 1003)), StartsWith("t.json is no trace of vGPUs"));
  EXPECT_THAT(error(Trace(kNames, 1003)), "t.json: there is no vGPU in this trace");
  EXPECT_THAT(error(Trace(Span(1, "runs", 1000, 1), 999)), StartsWith("t.json is no trace of vGPUs"));
  EXPECT_THAT(error(Trace(Span(1, "runs", 1000, 1), 1e9)), "t.json: the trace is longer than a year");
  EXPECT_EQ(error(Trace(kNames + "," + Span(1, "runs", 1000, -1))),
            "t.json: event 5: its dur is below 0: the clock goes back");
  EXPECT_EQ(error(Trace(R"({"ph":"X","pid":-1,"tid":1,"ts":1000000000,"dur":1,"name":"runs"})")),
            "t.json: event 1: its pid is no GPU");
  EXPECT_EQ(error(Trace(R"({"ph":"X","pid":1,"tid":1,"dur":1,"name":"runs"})")), "t.json: event 1: its ts is no time");
  EXPECT_EQ(error(Trace(R"({"ph":"C","pid":1,"ts":1000000000,"name":"memory of a","args":{"resident":-1}})")),
            "t.json: event 1: its memory is below 0 or beyond 1 PB");
  EXPECT_EQ(error(Trace(Memory("", 1000, 1, 0))), "t.json: event 1: it names no vGPU");
}

TEST(TraceUse, TooMuchToKeep) {
  // Of a trace this long, each vGPU takes 100,000 samples.
  TraceUse use(100'000 * kSecond, kSecond);
  for (int name = 0; name < 1000; ++name) use.AddMemory(1, std::to_string(name), 0, 1);
  EXPECT_EQ(use.Take().error().code, ERANGE);
}

}  // namespace
}  // namespace tessera::plan
