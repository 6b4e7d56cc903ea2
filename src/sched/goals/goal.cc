#include "sched/goals/goal.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace tessera::sched {
namespace {

constexpr const char* kForms = "write p99=20ms or speed=80%";
constexpr Nanos kLeastTime = 100 * kMicrosecond;
constexpr Nanos kMostTime = 3600 * kSecond;

struct Unit {
  std::string_view name;
  Nanos length;
};
// From the largest down.
constexpr std::array<Unit, 3> kUnits = {{{"s", kSecond}, {"ms", kMillisecond}, {"us", kMicrosecond}}};

struct Number {
  double value;
  std::string_view unit;  // what follows it
};

std::optional<Number> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  return Number{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

std::string FormatNumber(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

Result<Goal> ParseSpeed(std::string_view text) {
  const auto number = ParseNumber(text);
  if (!number || (number->unit != "%" && !number->unit.empty()))
    return Fail(EINVAL, "goal: invalid speed " + Quoted(text), "write speed=80%");
  if (number->value < 1 || number->value > 100)
    return Fail(ERANGE, "goal: a speed of " + FormatNumber(number->value) + "% is out of range", "give 1% to 100%");
  return SpeedGoal{number->value};
}

Result<Nanos> ParseTime(std::string_view text) {
  const auto number = ParseNumber(text);
  for (const Unit& unit : kUnits) {
    if (!number || number->unit != unit.name) continue;
    const double time = std::round(number->value * static_cast<double>(unit.length));
    // Compared as doubles, which hold times that Nanos cannot.
    if (time >= static_cast<double>(kLeastTime) && time <= static_cast<double>(kMostTime))
      return static_cast<Nanos>(time);
    return Fail(ERANGE, "goal: a time of " + std::string(text) + " is out of range", "give 100us to 3600s");
  }
  return Fail(EINVAL, "goal: invalid time " + Quoted(text), "give a number and us, ms or s: p99=20ms");
}

Result<Goal> ParseLatency(std::string_view percentile, std::string_view text) {
  const auto number = ParseNumber(percentile);
  if (!number || !number->unit.empty())
    return Fail(EINVAL, "goal: invalid percentile " + Quoted("p" + std::string(percentile)), kForms);
  if (number->value < 50 || number->value > 99.99)
    return Fail(ERANGE, "goal: the percentile " + FormatNumber(number->value) + " is out of range", "give 50 to 99.99");
  const auto time = ParseTime(text);
  if (!time) return std::unexpected(time.error());
  return LatencyGoal{number->value, *time};
}

}  // namespace

Result<Goal> ParseGoal(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals != text.npos) {
    const std::string_view key = text.substr(0, equals);
    const std::string_view value = text.substr(equals + 1);
    if (key == "speed") return ParseSpeed(value);
    if (key.starts_with('p')) return ParseLatency(key.substr(1), value);
  }
  return Fail(EINVAL, "invalid goal " + Quoted(text), kForms);
}

std::string FormatGoal(const Goal& goal) {
  if (const auto* speed = std::get_if<SpeedGoal>(&goal)) return "speed=" + FormatNumber(speed->pct) + "%";
  const auto& latency = std::get<LatencyGoal>(goal);
  const Unit* unit = &kUnits.back();
  for (const Unit& larger : kUnits) {
    if (latency.time < larger.length) continue;
    unit = &larger;
    break;
  }
  return "p" + FormatNumber(latency.percentile) + "=" +
         FormatNumber(static_cast<double>(latency.time) / static_cast<double>(unit->length)) + std::string(unit->name);
}

}  // namespace tessera::sched
