#include <fmt/format.h>

#include <cctype>

#include "server/devices/gpu_driver.h"

namespace tessera::server {
namespace {

constexpr std::string_view kPrefix = "GPU-";
constexpr std::string_view kShape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string FormatUuid(const wire::Uuid& uuid) {
  std::string text(kPrefix);
  std::size_t nibble = 0;
  for (const char c : kShape) {
    if (c == '-') {
      text += '-';
      continue;
    }
    const std::uint8_t byte = uuid.bytes[nibble / 2];
    text += "0123456789abcdef"[nibble++ % 2 == 0 ? byte >> 4 : byte & 15];
  }
  return text;
}

Result<wire::Uuid> ParseUuid(std::string_view text) {
  const auto wrong =
      Fail(EINVAL, fmt::format("\"{}\" is no GPU UUID", text), "nvidia-smi -L and tessera gpus list them");
  if (text.starts_with("MIG-"))
    return Fail(ENOTSUP, fmt::format("{} is a MIG instance, which Tessera does not share", text),
                "name a whole GPU; nvidia-smi -mig 0 turns MIG off");
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + kShape.size()) return wrong;
  text.remove_prefix(kPrefix.size());
  wire::Uuid uuid;
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == '-') {
      if (text[i] != '-') return wrong;
      continue;
    }
    const int digit = HexDigit(text[i]);
    if (digit < 0) return wrong;
    uuid.bytes[nibble / 2] = static_cast<std::uint8_t>(uuid.bytes[nibble / 2] << 4 | digit);
    ++nibble;
  }
  return uuid;
}

}  // namespace tessera::server
