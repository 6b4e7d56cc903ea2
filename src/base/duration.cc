#include "base/duration.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace tessera {

Result<Nanos> ParseDuration(std::string_view text) {
  constexpr double kMost = 365.0 * 24 * 3600;
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"ms", 1e-3}, {"s", 1},
                                                            {"m", 60}, {"min", 60},  {"h", 3600}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, seconds] : kUnits) {
    if (error != std::errc() || unit != name || !(number >= 0) || std::isinf(number)) continue;
    if (number * seconds > kMost) return Fail(ERANGE, "'" + std::string(text) + "' is longer than a year");
    return static_cast<Nanos>(number * seconds * static_cast<double>(kSecond));
  }
  return Fail(EINVAL, "invalid duration '" + std::string(text) + "'", "write 500ms, 10s, 2min or 1h");
}

}  // namespace tessera
