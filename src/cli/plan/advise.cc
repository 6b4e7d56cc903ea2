#include "cli/plan/advise.h"

#include <nlohmann/json.hpp>

#include "base/duration.h"
#include "cli/plan/advise_sources.h"
#include "cli/plan/advise_text.h"
#include "cli/terminal/output.h"

namespace tessera::cli {
namespace {

constexpr Nanos kLeastStep = 100 * kMillisecond;  // of asking the daemon

Result<Nanos> DurationOr(const char* option, const std::string& text, Nanos otherwise) {
  if (text.empty()) return otherwise;
  const auto duration = ParseDuration(text);
  if (!duration)
    return Fail(duration.error().code, std::string(option) + ": " + duration.error().message, duration.error().hint);
  if (*duration <= 0) return Fail(EINVAL, std::string(option) + " must be above 0");
  return *duration;
}

Result<SeenFleet> See(const Common& common, const AdviseChoices& choices) {
  if (!choices.samples.empty() && !choices.prometheus.empty())
    return Fail(EINVAL, "--samples and --prometheus are two sources", "choose one of them");
  if (!choices.samples.empty()) {
    if (!choices.length.empty() || !choices.every.empty())
      return Fail(EINVAL, "--for and --every say nothing about a file", "leave them out with --samples");
    return ReadMeteredCsv(choices.samples);
  }
  const bool live = choices.prometheus.empty();
  const auto length = DurationOr("--for", choices.length, live ? 10 * kSecond : 86'400 * kSecond);
  if (!length) return std::unexpected(length.error());
  const auto every = DurationOr("--every", choices.every, live ? kSecond / 2 : 300 * kSecond);
  if (!every) return std::unexpected(every.error());
  if (*every > *length) return Fail(EINVAL, "--every is longer than --for", "choose a shorter --every");
  if (!live) return AskPrometheus(choices.prometheus, *length, *every);
  if (*every < kLeastStep) return Fail(ERANGE, "--every is below 100 ms, which the daemon is not to be asked");
  return WatchDaemon(common.RunDirectory(), *length, *every);
}

}  // namespace

Result<int> Advise(const Common& common, const AdviseChoices& choices) {
  const auto seen = See(common, choices);
  if (!seen) return std::unexpected(seen.error());
  const auto advice = sched::Advise(seen->fleet);
  if (common.json) {
    PrintJson(AdviceJson(*seen, advice));
  } else {
    Print(AdviceText(*seen, advice));
  }
  return 0;
}

}  // namespace tessera::cli
