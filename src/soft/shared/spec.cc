#include "soft/shared/spec.h"

#include <vector>

namespace tessera::soft {
namespace {

constexpr const char* kHint = "use [COUNTx]MEMORY and keys, such as 2x16GiB or 16GiB,sms=8,pcie=8GB/s,slice=2048us";

std::unexpected<Error> Bad(std::string_view part, int code = EINVAL) {
  return Fail(code, "soft GPU: '" + std::string(part) + "' " + (code == ERANGE ? "is out of range" : "is not valid"),
              kHint);
}

Result<std::uint64_t> ParsePositive(std::string_view part, std::string_view size) {
  const auto value = ParseSize(size);
  if (!value) return Bad(part, value.error().code);
  if (*value == 0) return Bad(part, ERANGE);
  return *value;
}

// "16M" instructions are millions, so read the number as a size in powers of 1000.
Result<std::uint64_t> ParseCount(std::string_view part, std::string_view value) {
  const bool has_unit = !value.empty() && (value.back() < '0' || value.back() > '9');
  return ParsePositive(part, std::string(value) + (has_unit ? "B" : ""));
}

Result<Nanos> ParseTime(std::string_view part, std::string_view value) {
  const bool micros = value.ends_with("us");
  if (!micros && !value.ends_with("ms")) return Bad(part);
  const auto number = ParsePositive(part, value.substr(0, value.size() - 2));
  if (!number) return std::unexpected(number.error());
  if (*number > 10'000'000) return Bad(part, ERANGE);
  return static_cast<Nanos>(*number) * (micros ? kMicrosecond : kMillisecond);
}

template <typename Value, typename Field>
Result<void> Store(const Result<Value>& value, Field& field) {
  if (!value) return std::unexpected(value.error());
  field = static_cast<Field>(*value);
  return {};
}

Result<void> ParseKey(std::string_view part, Spec& spec) {
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) return Bad(part);
  const std::string_view key = part.substr(0, equals);
  std::string_view value = part.substr(equals + 1);
  if (key == "slice") return Store(ParseTime(part, value), spec.slice);
  if (key == "speed") return Store(ParseCount(part, value), spec.instructions_per_second);
  if (key == "context") return Store(ParsePositive(part, value), spec.context_bytes);
  if (key == "sms") {
    const auto count = ParseCount(part, value);
    if (count && *count > 1024) return Bad(part, ERANGE);
    return Store(count, spec.multiprocessors);
  }
  if (key == "pcie") {
    if (value.ends_with("/s")) value.remove_suffix(2);
    return Store(ParsePositive(part, value), spec.pcie_bytes_per_second);
  }
  return Bad(part);
}

Result<void> ParseDevices(std::string_view part, Spec& spec) {
  std::string_view memory = part;
  if (const std::size_t times = part.find('x'); times != std::string_view::npos) {
    const auto count = ParseCount(part, part.substr(0, times));
    if (count && *count > kMaxDevices) return Bad(part, ERANGE);
    if (const auto stored = Store(count, spec.devices); !stored) return stored;
    memory = part.substr(times + 1);
  }
  return Store(ParsePositive(part, memory), spec.memory_bytes);
}

// A number of bytes in the largest unit that divides it.
std::string ExactSize(std::uint64_t bytes) {
  if (bytes % kGiB == 0) return std::to_string(bytes / kGiB) + "GiB";
  if (bytes % kMiB == 0) return std::to_string(bytes / kMiB) + "MiB";
  return std::to_string(bytes);
}

}  // namespace

Result<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const auto parsed = begin == 0 ? ParseDevices(part, spec) : ParseKey(part, spec);
    if (!parsed) return std::unexpected(parsed.error());
    begin = end + 1;
  }
  return spec;
}

std::string FormatSpec(const Spec& spec) {
  const Spec standard;
  std::string text = spec.devices == 1 ? "" : std::to_string(spec.devices) + "x";
  text += ExactSize(spec.memory_bytes);
  const auto add = [&](bool differs, const std::string& part) {
    if (differs) text += "," + part;
  };
  add(spec.multiprocessors != standard.multiprocessors, "sms=" + std::to_string(spec.multiprocessors));
  add(spec.pcie_bytes_per_second != standard.pcie_bytes_per_second,
      "pcie=" + std::to_string(spec.pcie_bytes_per_second) + "B/s");
  add(spec.instructions_per_second != standard.instructions_per_second,
      "speed=" + std::to_string(spec.instructions_per_second));
  add(spec.slice != standard.slice, "slice=" + std::to_string(spec.slice / kMicrosecond) + "us");
  add(spec.context_bytes != standard.context_bytes, "context=" + ExactSize(spec.context_bytes));
  return text;
}

}  // namespace tessera::soft
