#include "plan/generate/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "plan/generate/portable_random.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

std::string Made(GeneratedKind kind, std::uint64_t seed, const GenerateOptions& options = {}) {
  std::ostringstream out;
  if (auto made = Generate(kind, seed, options, out); !made) return made.error().Text();
  return out.str();
}

// FNV-1a, of 64 bits.
std::uint64_t Hash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char letter : text) hash = (hash ^ letter) * 0x100000001b3;
  return hash;
}

template <typename Numbers>
auto Part(Numbers numbers, double part) {
  std::ranges::sort(numbers);
  return numbers[static_cast<std::size_t>(part * static_cast<double>(numbers.size() - 1))];
}

TEST(Generate, TheSameBytesOnEveryMachine) {
  EXPECT_EQ(Hash(Made(GeneratedKind::kUse, 1, {.length = 3600 * kSecond})), 17634599583197652095u);
  EXPECT_EQ(Hash(Made(GeneratedKind::kPods, 1)), 11398756762836962873u);
  EXPECT_EQ(Hash(Made(GeneratedKind::kNodes, 1)), 14146336273199412830u);
  EXPECT_EQ(Hash(Made(GeneratedKind::kRequests, 1)), 5292738057777109941u);
  EXPECT_NE(Made(GeneratedKind::kNodes, 1), Made(GeneratedKind::kNodes, 2));
}

// The figures of the published day; see generated_use.cc.
TEST(Generate, ADayOfProgramsThatMostlyWait) {
  const auto day = WorkloadOf("day.csv", Made(GeneratedKind::kUse, 7));
  ASSERT_TRUE(day) << day.error().Text();
  EXPECT_EQ(day->interval, 57 * kSecond);
  EXPECT_THAT(day->tenants.size(), AllOf(Ge(130u), Le(156u)));
  std::vector<std::uint64_t> peaks;
  std::map<Nanos, double> busy;
  double duty = 0, idle = 0, samples = 0;
  for (const Tenant& tenant : day->tenants) {
    peaks.push_back(tenant.memory / kMiB);
    for (const UseSample& sample : tenant.samples) {
      busy[sample.at] += sample.duty;
      duty += sample.duty;
      idle += sample.duty == 0;
      ++samples;
    }
  }
  std::vector<double> gpus;
  for (const auto& [at, sum] : busy) gpus.push_back(sum);
  EXPECT_NEAR(duty / samples, 0.065, 0.005);
  EXPECT_NEAR(idle / samples, 0.67, 0.02);
  EXPECT_NEAR(Part(peaks, 0.5) / 1024., 37, 1.5);
  EXPECT_NEAR(Part(gpus, 0.5), 4.9, 1);
  EXPECT_NEAR(Part(gpus, 0.99), 25, 3);
  EXPECT_NEAR(Part(gpus, 1), 29.7, 4);
}

TEST(Generate, RequestsInBursts) {
  const auto hour = WorkloadOf("hour.csv", Made(GeneratedKind::kRequests, 7));
  ASSERT_TRUE(hour) << hour.error().Text();
  const std::vector<Nanos>& times = hour->tenants[0].arrivals.times;
  EXPECT_NEAR(times.size(), 8819, 2000);
  std::map<Nanos, int> minutes;
  for (const Nanos at : times) ++minutes[at / (60 * kSecond)];
  EXPECT_LT(minutes.size(), 55u) << "some minutes have none";
  EXPECT_GT(std::ranges::max_element(minutes, {}, [](const auto& minute) { return minute.second; })->second, 400);
  // 2,048 and 28 tokens: 0.05 ms and 1 ms each.
  EXPECT_NEAR(static_cast<double>(hour->tenants[0].service) / kMillisecond, 2048 * 0.05 + 28, 13);
}

TEST(Generate, PodsAsPublished) {
  auto csv = CsvOf(Made(GeneratedKind::kPods, 7));
  ASSERT_TRUE(csv);
  const std::size_t gpus = *csv->Column("num_gpu"), milli = *csv->Column("gpu_milli");
  std::map<std::string, double> parts;
  while (*csv->Next()) {
    parts[csv->Field(gpus)] += 100. / 8152;
    if (csv->Field(gpus) == "1") parts[csv->Field(milli) == "1000" ? "whole" : "part"] += 100. / 8152;
  }
  EXPECT_NEAR(parts["0"], 13.3, 1);
  EXPECT_NEAR(parts["part"], 37.8, 1.5);
  EXPECT_NEAR(parts["whole"], 48.0, 1.5);
  EXPECT_NEAR(parts["2"] + parts["4"] + parts["8"], 0.9, 0.4);
  EXPECT_EQ(csv->line(), 8152u + 2);

  auto nodes = CsvOf(Made(GeneratedKind::kNodes, 7));
  ASSERT_TRUE(nodes);
  double all = 0;
  while (*nodes->Next()) all += *nodes->Number(*nodes->Column("gpu"));
  EXPECT_NEAR(all, 6212, 500);
}

TEST(Generate, LengthAndCount) {
  const auto hour = WorkloadOf("x.csv", Made(GeneratedKind::kUse, 1, {.length = 600 * kSecond, .count = 3}));
  ASSERT_TRUE(hour);
  EXPECT_EQ(hour->tenants.size(), 3u);
  EXPECT_EQ(hour->length, 627 * kSecond);
  EXPECT_EQ(std::ranges::count(Made(GeneratedKind::kPods, 1, {.count = 5}), '\n'), 6);
  EXPECT_EQ(std::ranges::count(Made(GeneratedKind::kNodes, 1, {.count = 5}), '\n'), 6);
  EXPECT_LT(Made(GeneratedKind::kRequests, 1, {.length = 60 * kSecond}).size(), 40'000u);
}

TEST(Generate, WhatIsTooMuch) {
  EXPECT_THAT(Made(GeneratedKind::kUse, 1, {.length = 367 * 86'400 * kSecond}), HasSubstr("give at most 366 days"));
  EXPECT_THAT(Made(GeneratedKind::kRequests, 1, {.length = 32 * 86'400 * kSecond}), HasSubstr("give at most 31 days"));
  EXPECT_THAT(Made(GeneratedKind::kPods, 1, {.count = 1'000'001}), HasSubstr("the count is above 1000000"));
  std::ostringstream full;
  full.setstate(std::ios::badbit);
  EXPECT_EQ(Generate(GeneratedKind::kUse, 1, {}, full).error().code, EIO);
}

TEST(Generate, Names) {
  EXPECT_EQ(ParseGeneratedKind("genai"), GeneratedKind::kUse);
  EXPECT_EQ(ParseGeneratedKind("cluster"), GeneratedKind::kPods);
  EXPECT_EQ(ParseGeneratedKind("cluster-nodes"), GeneratedKind::kNodes);
  EXPECT_EQ(ParseGeneratedKind("llm"), GeneratedKind::kRequests);
  EXPECT_EQ(ErrorOf(ParseGeneratedKind("gpt")),
            "no workload is called 'gpt'; use genai, cluster, cluster-nodes or llm");
}

TEST(PortableRandom, Exponential) {
  PortableRandom random(1);
  constexpr std::int64_t kMean = 1'000'000'000'000;
  std::vector<std::int64_t> numbers;
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    numbers.push_back(random.Exponential(kMean));
    sum += static_cast<double>(numbers.back()) / kMean;
  }
  EXPECT_NEAR(sum / 100'000, 1, 0.01);
  EXPECT_NEAR(static_cast<double>(Part(numbers, 0.5)) / kMean, 0.6931, 0.01);
  EXPECT_NEAR(static_cast<double>(Part(numbers, 0.95)) / kMean, 2.9957, 0.05);
  EXPECT_EQ(random.Exponential(0), 0);
}

TEST(PortableRandom, QuantilesAndWeights) {
  PortableRandom random(1);
  constexpr Quantile kPoints[] = {{0, -100}, {500'000, 0}, {500'001, 1000}, {1'000'000, 2000}};
  std::vector<std::int64_t> numbers;
  for (int i = 0; i < 50'000; ++i) numbers.push_back(random.Of(kPoints));
  EXPECT_NEAR(Part(numbers, 0.25), -50, 2);
  EXPECT_NEAR(Part(numbers, 0.75), 1500, 20);
  EXPECT_THAT(numbers, testing::Each(AllOf(Ge(-100), Le(2000))));
  constexpr std::uint32_t kWeights[] = {1, 0, 3};
  std::vector<int> picked(3);
  for (int i = 0; i < 40'000; ++i) ++picked[random.Pick(kWeights)];
  EXPECT_NEAR(picked[0], 10'000, 400);
  EXPECT_EQ(picked[1], 0);
}

}  // namespace
}  // namespace tessera::plan
