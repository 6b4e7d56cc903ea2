#include "face/files/file_value.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace tessera::face {
namespace {

constexpr std::size_t kLongestValue = 64;

// A message gets printable characters only.
bool IsPrinted(char c) { return c > ' ' && c <= '~'; }

}  // namespace

Result<std::string_view> OneValue(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty()) return Fail(EINVAL, "the value is empty");
  if (text.size() > kLongestValue) return Fail(EINVAL, "the value is too long");
  if (!std::ranges::all_of(text, IsPrinted)) return Fail(EINVAL, "more than one value", "write one value at a time");
  return text;
}

Result<std::uint64_t> WholeNumber(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size())
    return Fail(ERANGE, std::string(text) + " does not fit in 64 bits");
  if (error != std::errc() || end != text.data() + text.size())
    return Fail(EINVAL, "invalid number \"" + std::string(text) + "\"");
  return number;
}

Result<bool> OnOrOff(std::string_view text) {
  const auto number = WholeNumber(text);
  if (!number) return std::unexpected(number.error());
  if (*number > 1) return Fail(ERANGE, "invalid value " + std::string(text), "write 0 or 1");
  return *number == 1;
}

}  // namespace tessera::face
