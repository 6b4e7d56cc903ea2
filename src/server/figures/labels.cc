#include "server/figures/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text/utf8.h"

namespace tessera::server {
namespace {

constexpr std::size_t kMostLabels = 8, kLongestKey = 63, kLongestValue = 253;

// Labels of our own metrics, a test compares them; and those by which Prometheus tells targets and quantiles apart.
constexpr auto kTaken = std::to_array<std::string_view>({"call", "direction", "gpu", "instance", "job", "le", "name",
                                                         "pid", "quantile", "phase", "reason", "result", "space",
                                                         "state", "uuid", "version", "vgpu", "window"});

bool MayBegin(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

bool IsKey(std::string_view key) {
  return !key.empty() && key.size() <= kLongestKey && MayBegin(key.front()) && !key.starts_with("__") &&
         std::ranges::all_of(key, [](char c) { return MayBegin(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<void> CheckLabels(const Labels& labels) {
  if (labels.size() > kMostLabels)
    return Fail(EINVAL, fmt::format("labels: {} are too many", labels.size()),
                fmt::format("use at most {}", kMostLabels));
  for (const auto& [key, value] : labels) {
    if (!IsKey(key))
      return Fail(EINVAL, fmt::format("labels: \"{}\" cannot be the name of a label", key),
                  "use 1 to 63 lower-case letters, digits and underscores, no digit first and no two underscores");
    if (std::ranges::find(kTaken, key) != kTaken.end())
      return Fail(EINVAL, fmt::format("labels: \"{}\" is a label of the metrics themselves", key),
                  "choose another name");
    if (value.size() > kLongestValue)
      return Fail(EINVAL, fmt::format("labels: the value of {} has {} bytes", key, value.size()),
                  fmt::format("use at most {}", kLongestValue));
    if (!IsPrintableUtf8(value))
      return Fail(EINVAL, fmt::format("labels: the value of {} is no printable text", key),
                  "use UTF-8 without control characters");
  }
  return {};
}

std::string FormatLabels(const Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  return text;
}

}  // namespace tessera::server
