#include "plan/input/timestamp.h"

#include <chrono>

namespace tessera::plan {
namespace {

// Takes a number of exactly so many digits, and what must follow it.
bool Take(std::string_view& text, std::size_t digits, std::string_view behind, int& number) {
  if (text.size() < digits) return false;
  number = 0;
  for (const char digit : text.substr(0, digits)) {
    if (digit < '0' || digit > '9') return false;
    number = 10 * number + (digit - '0');
  }
  text.remove_prefix(digits);
  if (behind.empty()) return true;
  if (text.empty() || behind.find(text[0]) == behind.npos) return false;
  text.remove_prefix(1);
  return true;
}

// Nanoseconds of ".9799600", which is removed; none: no digit follows the point.
std::optional<Nanos> TakeFraction(std::string_view& text) {
  if (text.empty() || text[0] != '.') return 0;
  text.remove_prefix(1);
  Nanos nanos = 0, unit = kSecond;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    unit /= 10;
    nanos += unit * (text[digits] - '0');
  }
  text.remove_prefix(digits);
  return digits > 0 ? std::optional(nanos) : std::nullopt;
}

}  // namespace

std::optional<Nanos> ParseTimestamp(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  if (!Take(text, 4, "-", year) || !Take(text, 2, "-", month) || !Take(text, 2, " T", day) ||
      !Take(text, 2, ":", hour) || !Take(text, 2, ":", minute) || !Take(text, 2, "", second))
    return std::nullopt;
  const auto fraction = TakeFraction(text);
  if (!fraction || (!text.empty() && text != "Z" && text != "+00:00")) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || year < 1970 || year > 2200 || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  const Nanos days = std::chrono::sys_days(date).time_since_epoch().count();
  return (((days * 24 + hour) * 60 + minute) * 60 + second) * kSecond + *fraction;
}

}  // namespace tessera::plan
