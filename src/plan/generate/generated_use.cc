// Metered use like that of a platform where people make pictures and clips with models: pods with a GPU each, which
// keep their memory and mostly wait for somebody. Statistics of Alibaba's cluster-trace-v2026-GenAI ("GenTD26"), one
// day: 114 pods at once, 143 in all; mean duty 6.5 %; 67 % of samples idle; in all 4.9 GPUs busy (median), 25.0 (99 %),
// 29.7 (most); the most memory of a pod 37 GiB (median); a sample each 57 s, of which about 1 % are missing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "plan/generate/generators.h"

namespace tessera::plan {
namespace {

constexpr int kInterval = 57;  // seconds
constexpr int kDaySeconds = 24 * 3600;

// Part of the pods that work, by hour: a morning and an afternoon with a pause between, and a quiet night.
constexpr std::array<std::uint32_t, 24> kBusy = {
    150'000, 590'000, 740'000, 640'000, 290'000, 670'000, 780'000, 820'000, 730'000, 580'000, 270'000, 200'000,
    170'000, 150'000, 130'000, 120'000, 110'000, 110'000, 110'000, 110'000, 120'000, 120'000, 120'000, 130'000};
// A pod that works, and one that does not, thinks again so often at a sample: work then lasts about five samples.
constexpr std::uint32_t kThinksAgain = 460'000;
constexpr std::uint32_t kEnds = 168;  // a pod at a sample, so that 29 of 114 do in a day; another one takes its place
constexpr std::uint32_t kMissing = 11'000;

// Hundredths of a percent of duty, of samples with work.
constexpr Quantile kDuty[] = {{0, 1},          {50'000, 50},    {100'000, 140},  {250'000, 990},  {500'000, 1880},
                              {750'000, 2590}, {900'000, 3750}, {950'000, 5800}, {990'000, 9200}, {1'000'000, 9950}};
// All pods together do more or less than usual, in hundredths; for about eight samples at a time.
constexpr Quantile kTogether[] = {{0, 60}, {250'000, 77}, {500'000, 90}, {900'000, 127}, {1'000'000, 150}};
constexpr std::uint32_t kTogetherChanges = 120'000;
// The most memory of a pod, MiB.
constexpr Quantile kPeak[] = {{0, 17'000},       {100'000, 31'500}, {250'000, 34'400}, {500'000, 38'000},
                              {750'000, 41'400}, {900'000, 44'500}, {990'000, 48'000}, {1'000'000, 48'300}};
// What of it a pod has, in thousandths: it changes at two of three samples with work.
constexpr Quantile kHeld[] = {{0, 250},       {100'000, 400},  {500'000, 590},   {900'000, 690},
                              {975'000, 900}, {995'000, 1000}, {1'000'000, 1000}};
constexpr std::uint32_t kHeldChanges = 670'000;

struct Pod {
  std::uint32_t number = 0;
  bool works = false;
  std::int64_t peak = 0;  // MiB
  std::int64_t held = 0;  // thousandths of it
};

}  // namespace

void GenerateUse(PortableRandom& random, Nanos length, std::uint32_t programs, std::ostream& out) {
  std::uint32_t next = 0;
  const auto new_pod = [&] { return Pod{.number = next++, .peak = random.Of(kPeak), .held = random.Of(kHeld)}; };
  std::vector<Pod> pods;
  for (std::uint32_t i = 0; i < programs; ++i) pods.push_back(new_pod());
  out << "second,pod,duty_pct,memory_mib\n";
  std::int64_t together = 100;
  for (std::int64_t second = 0; second * kSecond < length && out; second += kInterval) {
    if (random.Chance(kTogetherChanges)) together = random.Of(kTogether);
    const std::uint32_t busy = kBusy[static_cast<std::size_t>(second % kDaySeconds / 3600)];
    for (Pod& pod : pods) {
      if (random.Chance(kEnds)) pod = new_pod();
      if (random.Chance(kThinksAgain)) pod.works = random.Chance(busy);
      if (pod.works && random.Chance(kHeldChanges)) pod.held = random.Of(kHeld);
      const std::int64_t duty = pod.works ? std::min<std::int64_t>(random.Of(kDuty) * together / 100, 9950) : 0;
      if (random.Chance(kMissing)) continue;
      out << fmt::format("{},{},{}.{:02},{}\n", second, pod.number, duty / 100, duty % 100, pod.peak * pod.held / 1000);
    }
  }
}

}  // namespace tessera::plan
