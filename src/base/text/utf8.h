#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// A character of a text in UTF-8: how many bytes it has, 0 if there is none, and which it is.
struct Utf8Character {
  std::size_t bytes = 0;
  char32_t character = 0;
};

// The first character of `text`. It has 0 bytes if the text is empty, or does not begin with whole, valid UTF-8: the
// shortest form, no surrogate, at most U+10FFFF. Any thread.
Utf8Character DecodeUtf8(std::string_view text);

// Whether `text` is UTF-8 without control characters (U+0000 to U+001F and U+007F to U+009F). Any thread.
bool IsPrintableUtf8(std::string_view text);

}  // namespace tessera
