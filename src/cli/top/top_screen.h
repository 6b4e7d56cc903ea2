// A picture of characters: what `tessera top` shows, whether on a terminal, as plain text, or held against a test.
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

// The text in characters of one column each: what a terminal would obey, join, turn around or show in two columns is
// "?", and so is what is no UTF-8. Names of programs may be any bytes.
std::vector<std::string> Characters(const std::string& text);

class Screen {
 public:
  // `unicode`: whether it may hold more than ASCII; what else is put there is "?" then.
  Screen(int width, int height, bool unicode);

  int width() const { return width_; }
  int height() const { return height_; }
  bool unicode() const { return unicode_; }
  const Cell& At(int x, int y) const { return cells_[static_cast<std::size_t>(y) * width_ + x]; }

  // Writes from (x, y) on, `most` columns at most (-1: any), and nothing outside. The column after the text.
  int Put(int x, int y, const std::string& text, Style style = {}, int most = -1);
  // As Put, of exactly `width` columns: what is too long ends in "…" (ASCII: "~"), what is too short in spaces.
  void PutField(int x, int y, int width, const std::string& text, Style style = {}, bool right = false);
  // The style of a whole line; characters stay.
  void Paint(int y, Style style);

  // Lines without spaces at the end, each with its newline.
  std::string Text() const;

 private:
  int width_, height_;
  bool unicode_;
  std::vector<Cell> cells_;
};

}  // namespace tessera::cli::top
