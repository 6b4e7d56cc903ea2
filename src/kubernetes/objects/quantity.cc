#include "kubernetes/objects/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace tessera::kubernetes {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr auto kSuffixes = std::to_array<Suffix>({{"", 1},
                                                  {"n", 1e-9},
                                                  {"u", 1e-6},
                                                  {"m", 1e-3},
                                                  {"k", 1e3},
                                                  {"M", 1e6},
                                                  {"G", 1e9},
                                                  {"T", 1e12},
                                                  {"P", 1e15},
                                                  {"E", 1e18},
                                                  {"Ki", 0x1p10},
                                                  {"Mi", 0x1p20},
                                                  {"Gi", 0x1p30},
                                                  {"Ti", 0x1p40},
                                                  {"Pi", 0x1p50},
                                                  {"Ei", 0x1p60}});

}  // namespace

Result<std::uint64_t> ParseQuantity(std::string_view text) {
  const auto wrong = [&](int code, const char* what) {
    return Fail(code, fmt::format("quantity \"{}\" {}", text, what), "write a number such as 60Gi or 40");
  };
  std::size_t digits = 0;
  while (digits < text.size() && ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) ++digits;
  if (digits == 0) return wrong(EINVAL, "is no number");
  std::size_t end = digits;
  // "2e3", while "2E" is a suffix.
  if (end + 1 < text.size() && (text[end] == 'e' || text[end] == 'E') &&
      text.find_first_not_of("0123456789", end + 1 + (text[end + 1] == '-' || text[end + 1] == '+' ? 1 : 0)) ==
          std::string_view::npos) {
    end = text.size();
  }
  // A whole number has all its digits; a double has 53 bits of them.
  std::uint64_t whole = 0;
  const bool is_whole = end == digits && text.substr(0, digits).find('.') == std::string_view::npos;
  if (is_whole) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + digits, whole);
    if (error != std::errc() || stop != text.data() + digits) return wrong(ERANGE, "is too large");
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, value);
  if (error != std::errc() || stop != text.data() + end) return wrong(EINVAL, "is no number");
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.text != text.substr(end)) continue;
    if (is_whole && suffix.factor >= 1) {
      const auto factor = static_cast<std::uint64_t>(suffix.factor);
      if (whole > kMost / factor) return wrong(ERANGE, "is too large");
      return whole * factor;
    }
    const double result = std::ceil(value * suffix.factor);
    if (result > 0x1p63 * (1 - 0x1p-52)) return wrong(ERANGE, "is too large");
    return static_cast<std::uint64_t>(result);
  }
  return wrong(EINVAL, "has an unknown unit");
}

std::string FormatBytes(std::uint64_t bytes) {
  constexpr std::pair<const char*, int> kUnits[] = {{"Ti", 40}, {"Gi", 30}, {"Mi", 20}, {"Ki", 10}};
  for (const auto& [unit, bits] : kUnits) {
    if (bytes != 0 && bytes % (std::uint64_t{1} << bits) == 0) return fmt::format("{}{}", bytes >> bits, unit);
  }
  return std::to_string(bytes);
}

}  // namespace tessera::kubernetes
