#include "base/size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tessera {
namespace {

// The number at the start of `text`, which is advanced past it. Digits with at most one point: no sign, no exponent.
Result<long double> TakeNumber(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string digits(text.substr(0, end));
  double value = 0;
  const auto [stop, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  if (status != std::errc() || stop != digits.data() + digits.size()) return Fail(EINVAL, "not a number");
  // from_chars has no long double that keeps 64 bits apart here, so whole numbers are read as integers.
  unsigned long long whole = 0;
  const auto [whole_stop, whole_status] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  text.remove_prefix(end);
  if (whole_stop == digits.data() + digits.size()) {
    if (whole_status == std::errc::result_out_of_range) return Fail(ERANGE, "too large");
    return static_cast<long double>(whole);
  }
  return value;
}

// Bytes in one unit of `suffix` ("", "B", "K", "KiB", "KB", ...), or 0.
long double UnitOf(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  constexpr std::string_view kPrefixes = "KMGT";
  const std::size_t power = kPrefixes.find(static_cast<char>(suffix[0] == 'k' ? 'K' : suffix[0]));
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = suffix.substr(1);
  if (rest.empty() || rest == "iB") return std::pow(1024.0L, power + 1);
  return rest == "B" ? std::pow(1000.0L, power + 1) : 0;
}

}  // namespace

Result<std::uint64_t> ParseSize(std::string_view text, std::uint64_t whole) {
  const std::string shown(text);
  const std::string hint = "use a number with K, M, G or T, such as 512M or 20G";
  auto number = TakeNumber(text);
  if (!number) return Fail(number.error().code, "invalid size '" + shown + "'", hint);
  if (text == "%") {
    if (whole == 0) return Fail(EINVAL, "'" + shown + "': percentages are not allowed here", hint);
    if (*number > 100) return Fail(ERANGE, "'" + shown + "' is more than 100 %", hint);
    return static_cast<std::uint64_t>(*number * whole / 100);
  }
  const long double unit = UnitOf(text);
  if (unit == 0) return Fail(EINVAL, "invalid size '" + shown + "'", hint);
  const long double bytes = *number * unit;
  if (bytes >= 18446744073709551616.0L) return Fail(ERANGE, "'" + shown + "' is too large", hint);
  return static_cast<std::uint64_t>(bytes);
}

std::string FormatSize(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const double rounded = std::round(value * 10) / 10;
  const int decimals = rounded == std::floor(rounded) ? 0 : 1;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, rounded, kUnits[unit]);
  return text;
}

Result<double> ParsePercent(std::string_view text) {
  const std::string shown(text);
  const std::string hint = "use a percentage from 0 to 100, such as 30 or 12.5";
  auto number = TakeNumber(text);
  if (!number || (!text.empty() && text != "%")) return Fail(EINVAL, "invalid percentage '" + shown + "'", hint);
  if (*number > 100) return Fail(ERANGE, "'" + shown + "' is more than 100 %", hint);
  return static_cast<double>(*number);
}

}  // namespace tessera
