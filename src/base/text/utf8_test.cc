#include "base/text/utf8.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, TheFirstCharacter) {
  for (const auto& [text, bytes, character] :
       std::initializer_list<std::tuple<std::string_view, std::size_t, char32_t>>{{"ab", 1, 'a'},
                                                                                  {"\0"sv, 1, 0},
                                                                                  {"\u00e9x", 2, 0xe9},
                                                                                  {"\u20ac", 3, 0x20ac},
                                                                                  {"\U0001f600", 4, 0x1f600},
                                                                                  {"\U0010ffff", 4, 0x10ffff}}) {
    const Utf8Character first = DecodeUtf8(text);
    EXPECT_EQ(first.bytes, bytes) << text;
    EXPECT_EQ(first.character, character) << text;
  }
}

TEST(Utf8, WhatIsNone) {
  for (const std::string_view text :
       {""sv, "\x80"sv, "\xff"sv, "\xc3"sv, "\xc3("sv, "\xe2\x82"sv, "\xf0\x9f\x98"sv,  // cut short
        "\xc0\x80"sv, "\xe0\x80\x80"sv, "\xf0\x80\x80\x80"sv,                           // longer than need be
        "\xed\xa0\x80"sv, "\xed\xbf\xbf"sv,                                             // surrogates
        "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv}) {                                  // beyond the last
    EXPECT_EQ(DecodeUtf8(text).bytes, 0u) << testing::PrintToString(text);
  }
}

TEST(Utf8, WhatIsPrintable) {
  for (const std::string_view text : {""sv, "a b"sv, "\u00e9\u20ac\U0001f600"sv, "~"sv, "\u00a0"sv})
    EXPECT_TRUE(IsPrintableUtf8(text)) << text;
  for (const std::string_view text :
       {"\n"sv, "a\0"sv, "\x1b[2J"sv, "\x7f"sv, "\u0080"sv, "\u009f"sv, "a\xff"sv, "\xc3"sv})
    EXPECT_FALSE(IsPrintableUtf8(text)) << testing::PrintToString(text);
}

}  // namespace
}  // namespace tessera
