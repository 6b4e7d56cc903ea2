#include "cli/top/top_screen.h"

#include <gtest/gtest.h>

namespace tessera::cli::top {
namespace {

std::string Joined(const std::string& text) {
  std::string joined;
  for (const std::string& character : Characters(text)) joined += character;
  return joined;
}

TEST(Characters, WhatATerminalObeysIsNotThere) {
  EXPECT_EQ(Joined("\033[2J\033]0;x\007"), "?[2J?]0;x?");
  EXPECT_EQ(Joined("a\x7f\n\t\r"), "a????");
  EXPECT_EQ(Joined("\xc2\x9b"
                   "31m"),
            "?31m")
      << "CSI in one character";
  EXPECT_EQ(Joined("\xe2\x80\xae"
                   "abc"),
            "?abc")
      << "turns the text around";
}

TEST(Characters, WhatIsNoUtf8OrNotOneColumnIsAQuestionMarkEach) {
  EXPECT_EQ(Joined("\xff\xfe"), "??");
  EXPECT_EQ(Joined("a\xe2\x80"), "a??") << "cut off";
  EXPECT_EQ(Joined("\xc0\xaf"), "??") << "longer than it must be";
  EXPECT_EQ(Joined("\xed\xa0\x80"), "???") << "half a pair";
  EXPECT_EQ(Joined("日本 e\xcc\x81"), "?? e?") << "wide, and one that joins";
  EXPECT_EQ(Characters("Müller").size(), 6u);
  EXPECT_EQ(Joined("Müller жук Ω"), "Müller жук Ω");
}

TEST(Screen, PutsWhatFitsAndNothingOutside) {
  Screen screen(5, 2, true);
  EXPECT_EQ(screen.Put(3, 0, "abc"), 5);
  EXPECT_EQ(screen.Put(-2, 1, "xyz"), 1);
  screen.Put(0, 2, "no");
  screen.Put(0, -1, "no");
  EXPECT_EQ(screen.Text(), "   ab\nz\n");
}

TEST(Screen, FieldsAreAsWideAsTheyAre) {
  Screen screen(12, 3, true);
  screen.PutField(0, 0, 4, "abcdef");
  screen.PutField(5, 0, 4, "ab", {}, true);
  screen.PutField(0, 1, 4, "abcd");
  screen.PutField(0, 2, 0, "abcd");
  EXPECT_EQ(screen.Text(), "abc…   ab\nabcd\n\n");
}

TEST(Screen, WithoutUnicodeThereIsOnlyAscii) {
  Screen screen(6, 1, false);
  screen.PutField(0, 0, 5, "Müller");
  EXPECT_EQ(screen.Text(), "M?ll~\n");
}

TEST(Screen, PaintKeepsCharacters) {
  Screen screen(3, 1, true);
  screen.Put(0, 0, "ab", {.bold = true});
  screen.Paint(0, {.reverse = true});
  screen.Paint(7, {.reverse = true});
  EXPECT_EQ(screen.At(1, 0), (Cell{"b", {.reverse = true}}));
  EXPECT_EQ(screen.At(2, 0), (Cell{" ", {.reverse = true}}));
}

TEST(Screen, HasAtLeastACell) { EXPECT_EQ(Screen(0, -3, true).Text(), "\n"); }

}  // namespace
}  // namespace tessera::cli::top
