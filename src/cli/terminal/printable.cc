#include "cli/terminal/printable.h"

namespace tessera::cli {

std::string Printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8, U+0080 to U+009F are control characters as well: c2 and the byte itself.
    const bool c1 = byte >= 0x80 && byte < 0xa0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xc2;
    if (byte < 0x20 || byte == 0x7f || c1) text[i] = '?';
    if (c1) text[i - 1] = '?';
  }
  return text;
}

}  // namespace tessera::cli
