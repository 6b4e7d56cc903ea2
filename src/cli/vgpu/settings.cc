#include "cli/vgpu/settings.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/size.h"

namespace tessera::cli {
using client::Json;

namespace {

Result<int> ParseWhole(const std::string& text, const std::string& what, int least, int most) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    return Fail(ERANGE, "invalid " + what + " '" + text + "'",
                "use a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

// "none" alone: no labels.
Result<Json> ParseLabels(const std::vector<std::string>& words) {
  Json labels = Json::object();
  if (words == std::vector<std::string>{"none"}) return labels;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == word.npos || equals == 0)
      return Fail(EINVAL, "invalid label '" + word + "'", "use KEY=VALUE, such as team=a; none alone: no labels");
    if (!labels.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
      return Fail(EINVAL, "label '" + word.substr(0, equals) + "' is given twice");
  }
  return labels;
}

}  // namespace

Result<MemoryTerms> ParseMemory(const std::string& text) {
  const std::size_t colon = text.find(':');
  MemoryTerms terms{.limit = text.substr(0, colon), .max = {}};
  // Percentages are checked against an arbitrary whole; the daemon checks again with the GPU's memory.
  const auto limit = ParseSize(terms.limit, kGiB);
  if (!limit && terms.limit != "max") return std::unexpected(limit.error());
  if (colon == std::string::npos) return terms;
  terms.max = text.substr(colon + 1);
  const auto max = ParseSize(*terms.max, kGiB);
  if (!max) return std::unexpected(max.error());
  if (limit && terms.limit.ends_with('%') == terms.max->ends_with('%') && *max < *limit)
    return Fail(EINVAL, "in '" + text + "' the maximum is below the limit", "use LIMIT:MAX, such as 20G:40G");
  return terms;
}

Result<ComputeShare> ParseCompute(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto request = ParsePercent(text.substr(0, colon));
  if (!request) return std::unexpected(request.error());
  const auto limit = colon == std::string::npos ? request : ParsePercent(text.substr(colon + 1));
  if (!limit) return std::unexpected(limit.error());
  if (*request > *limit) {
    return Fail(EINVAL, "in '" + text + "' the request exceeds the limit", "use REQUEST:LIMIT, such as 30:60");
  }
  if (*limit == 0) return Fail(ERANGE, "in '" + text + "' the limit is 0", "use a percentage above 0");
  return ComputeShare{*request, *limit};
}

Result<int> ParseWeight(const std::string& text) { return ParseWhole(text, "weight", 1, 10000); }

Result<int> ParsePriority(const std::string& text) { return ParseWhole(text, "priority", 0, 15); }

Result<void> CheckName(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
  const bool only_dots = name.find_first_not_of('.') == name.npos;  // also an empty one
  if (only_dots || name.size() > 63 || !std::ranges::all_of(name, fits)) {
    return Fail(EINVAL, "invalid vGPU name '" + name + "'", "use up to 63 letters, digits, '.', '_' and '-'");
  }
  return {};
}

Result<void> CheckSettings(const VgpuSettings& settings) {
  const auto body = RequestBody(settings);
  if (!body) return std::unexpected(body.error());
  return {};
}

Result<Json> RequestBody(const VgpuSettings& settings) {
  Json body = Json::object();
  if (!settings.gpu.empty()) {
    // An index goes as a number, "auto" and a UUID as text.
    const bool index = std::ranges::all_of(settings.gpu, [](unsigned char c) { return std::isdigit(c); });
    if (index && settings.gpu.size() > 4) return Fail(ERANGE, "there is no GPU " + settings.gpu, "see 'tessera gpus'");
    body["gpu"] = index ? Json(std::stoi(settings.gpu)) : Json(settings.gpu);
  }
  if (!settings.memory.empty()) {
    const auto terms = ParseMemory(settings.memory);
    if (!terms) return std::unexpected(terms.error());
    body["memory_limit"] = terms->limit;
    if (terms->max) body["memory_max"] = *terms->max;
  }
  if (!settings.memory_request.empty()) {
    const auto size = ParseSize(settings.memory_request, kGiB);
    if (!size) return std::unexpected(size.error());
    body["memory_request"] = settings.memory_request;
  }
  if (!settings.swap_max.empty()) {
    const auto size = ParseSize(settings.swap_max, kGiB);
    if (!size && settings.swap_max != "max") return std::unexpected(size.error());
    body["memory_swap_max"] = settings.swap_max;
  }
  if (!settings.compute.empty()) {
    const auto share = ParseCompute(settings.compute);
    if (!share) return std::unexpected(share.error());
    body["compute_request"] = share->request_pct;
    body["compute_limit"] = share->limit_pct;
  }
  if (!settings.weight.empty()) {
    const auto weight = ParseWeight(settings.weight);
    if (!weight) return std::unexpected(weight.error());
    body["compute_weight"] = *weight;
  }
  if (!settings.priority.empty()) {
    const auto priority = ParsePriority(settings.priority);
    if (!priority) return std::unexpected(priority.error());
    body["compute_priority"] = *priority;
  }
  if (!settings.gang.empty()) {
    if (auto fits = CheckName(settings.gang); !fits)
      return Fail(EINVAL, "invalid gang '" + settings.gang + "'", fits.error().hint + "; none: no gang");
    body["gang"] = settings.gang;
  }
  if (!settings.labels.empty()) {
    auto labels = ParseLabels(settings.labels);
    if (!labels) return std::unexpected(labels.error());
    body["labels"] = std::move(*labels);
  }
  if (!settings.space.empty()) {
    if (auto fits = CheckName(settings.space); !fits) return std::unexpected(fits.error());
    body["space"] = settings.space;
  }
  if (!settings.sm.empty()) {
    const auto percent = ParsePercent(settings.sm);
    if (!percent) return std::unexpected(percent.error());
    if (*percent == 0) return Fail(ERANGE, "invalid SM limit '" + settings.sm + "'", "use a percentage above 0");
    body["sm_limit"] = *percent;
  }
  if (settings.reserve_sm) body["sm_reserved"] = true;
  if (settings.within_quota) body["within_quota"] = true;
  if (settings.sm_burst) body["sm_burst"] = *settings.sm_burst;
  if (!settings.goal.empty()) body["goal"] = settings.goal;
  return body;
}

}  // namespace tessera::cli
