#include "base/text/utf8.h"

namespace tessera {

Utf8Character DecodeUtf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return {};
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, first};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  static constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || bytes > text.size()) return {};
  char32_t character = first & (0x7f >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    character = character << 6 | (byte(i) & 0x3f);
  }
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  if (character < kLeast[bytes] || character > 0x10ffff || surrogate) return {};
  return {bytes, character};
}

bool IsPrintableUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character first = DecodeUtf8(text);
    if (first.bytes == 0 || first.character < 0x20 || (first.character >= 0x7f && first.character < 0xa0)) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

}  // namespace tessera
