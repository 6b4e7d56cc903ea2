#include "cli/terminal/printable.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Printable, HasNoControlCharacters) {
  EXPECT_EQ(Printable("caf\xc3\xa9 \xe2\x80\xa6"), "caf\xc3\xa9 \xe2\x80\xa6");
  EXPECT_EQ(Printable("a\tb\nc\x7f"), "a?b?c?");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "??31m")
      << "CSI in one character";
}

}  // namespace
}  // namespace tessera::cli
