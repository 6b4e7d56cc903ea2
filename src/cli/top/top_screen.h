// A picture of characters, which `tessera top` shows on a terminal or prints as text, and which tests compare.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli::top {

enum class Colour : unsigned char { kDefault, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };

struct Style {
  Colour colour = Colour::kDefault;
  bool bold = false;
  bool reverse = false;

  bool operator==(const Style&) const = default;
};

struct Cell {
  std::string character = " ";  // one column wide, in UTF-8
  Style style;

  bool operator==(const Cell&) const = default;
};

// The text as characters of one column each. Control characters, combining, right-to-left and wide characters become
// "?", and so do bytes that are not UTF-8: names of programs may hold any bytes.
std::vector<std::string> Characters(const std::string& text);

class Screen {
 public:
  // `unicode`: whether it may hold more than ASCII. If not, other characters become "?".
  Screen(int width, int height, bool unicode);

  int width() const { return width_; }
  int height() const { return height_; }
  bool unicode() const { return unicode_; }
  const Cell& At(int x, int y) const { return cells_[static_cast<std::size_t>(y) * width_ + x]; }

  // Writes from (x, y) on, `most` columns at most (-1: any), and nothing outside. The column after the text.
  int Put(int x, int y, const std::string& text, Style style = {}, int most = -1);
  // Like Put, but exactly `width` columns: longer text ends in "…" (ASCII: "~"), shorter text is padded.
  void PutField(int x, int y, int width, const std::string& text, Style style = {}, bool right = false);
  // Sets the style of a whole line; characters stay.
  void Paint(int y, Style style);

  // Lines without spaces at the end, each with its newline.
  std::string Text() const;

 private:
  int width_, height_;
  bool unicode_;
  std::vector<Cell> cells_;
};

}  // namespace tessera::cli::top
