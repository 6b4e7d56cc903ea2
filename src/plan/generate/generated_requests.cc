// Requests like those to a language model that completes code. Statistics of Azure's LLM inference traces of 2023
// ("code"): 8,819 in an hour, which come in bursts: minutes without any, and minutes with 600; 2,048 tokens of context
// (median 1,469, 99 % 7,436) and 28 generated ones (median 13, 99 % 249) on average.
#include <fmt/format.h>

#include "plan/generate/generators.h"

namespace tessera::plan {
namespace {

// Requests of a minute, in hundredths of the average one's.
constexpr Quantile kMinute[] = {{0, 0},         {200'000, 0},   {300'000, 20},   {500'000, 72},
                                {750'000, 160}, {900'000, 265}, {1'000'000, 420}};
constexpr Quantile kContext[] = {{0, 3},          {100'000, 147},  {250'000, 578},  {500'000, 1469},  {750'000, 2744},
                                 {900'000, 5186}, {950'000, 7302}, {990'000, 7436}, {1'000'000, 7437}};
constexpr Quantile kGenerated[] = {{0, 6},        {100'000, 7},  {250'000, 9},   {500'000, 13},   {750'000, 24},
                                   {900'000, 55}, {950'000, 90}, {990'000, 249}, {1'000'000, 900}};
// Within a minute, seven of ten follow each other at three tenths of its mean gap.
constexpr std::uint32_t kClose = 700'000;
constexpr std::int64_t kCloseTenths = 3, kFarHundredths = 263;

}  // namespace

void GenerateRequests(PortableRandom& random, Nanos length, std::uint32_t an_hour, std::ostream& out) {
  constexpr Nanos kMinuteNanos = 60 * kSecond;
  out << "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (Nanos minute = 0; minute < length && out; minute += kMinuteNanos) {
    const std::int64_t hundredths = random.Of(kMinute);
    if (hundredths == 0) continue;
    const Nanos gap = kMinuteNanos * 6000 / (hundredths * an_hour);
    Nanos at = minute;
    for (;;) {
      at += random.Chance(kClose) ? random.Exponential(gap) * kCloseTenths / 10
                                  : random.Exponential(gap) * kFarHundredths / 100;
      if (at >= minute + kMinuteNanos || at >= length) break;
      const Nanos second = at / kSecond;
      const std::int64_t context = random.Of(kContext), generated = random.Of(kGenerated);
      out << fmt::format("2026-01-{:02} {:02}:{:02}:{:02}.{:06},{},{}\n", 1 + second / 86'400, second / 3600 % 24,
                         second / 60 % 60, second % 60, at % kSecond / kMicrosecond, context, generated);
    }
  }
}

}  // namespace tessera::plan
