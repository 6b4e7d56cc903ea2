#include "cli/top/top_screen.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/text/utf8.h"

namespace tessera::cli::top {
namespace {

// Scripts and signs of which every terminal makes one column: Latin, Greek, Cyrillic, dashes and quotes, and what we
// draw with. Few, but nothing among them joins, turns or is wide.
bool TakesOneColumn(char32_t character) {
  static constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x20, 0x7e},     {0xa1, 0xac},     {0xae, 0x2ff},    {0x370, 0x377},  {0x37a, 0x37f},
                 {0x384, 0x38a},   {0x38c, 0x38c},   {0x38e, 0x3a1},   {0x3a3, 0x482},  {0x48a, 0x52f},
                 {0x2010, 0x2016}, {0x2018, 0x2026}, {0x2500, 0x257f}, {0x2581, 0x258f}};
  return std::ranges::any_of(kRanges,
                             [&](const auto& range) { return character >= range.first && character <= range.last; });
}

}  // namespace

std::vector<std::string> Characters(const std::string& text) {
  std::vector<std::string> characters;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Character decoded = DecodeUtf8(std::string_view(text).substr(i));
    characters.push_back(decoded.bytes > 0 && TakesOneColumn(decoded.character) ? text.substr(i, decoded.bytes) : "?");
    i += std::max<std::size_t>(decoded.bytes, 1);
  }
  return characters;
}

Screen::Screen(int width, int height, bool unicode)
    : width_(std::max(width, 1)), height_(std::max(height, 1)), unicode_(unicode) {
  cells_.resize(static_cast<std::size_t>(width_) * height_);
}

int Screen::Put(int x, int y, const std::string& text, Style style, int most) {
  if (y < 0 || y >= height_) return x;
  const int end = most < 0 ? width_ : std::min(width_, x + most);
  for (const std::string& character : Characters(text)) {
    if (x >= end) break;
    if (x >= 0)
      cells_[static_cast<std::size_t>(y) * width_ + x] = {unicode_ || character.size() == 1 ? character : "?", style};
    ++x;
  }
  return x;
}

void Screen::PutField(int x, int y, int width, const std::string& text, Style style, bool right) {
  if (width <= 0) return;
  const int length = static_cast<int>(Characters(text).size());
  const int spaces = std::max(width - length, 0);
  const std::string padding(spaces, ' ');
  Put(x, y, right ? padding + text : text + padding, style, width);
  if (length > width) Put(x + width - 1, y, unicode_ ? "…" : "~", style, 1);
}

void Screen::Paint(int y, Style style) {
  for (int x = 0; x < width_ && y >= 0 && y < height_; ++x)
    cells_[static_cast<std::size_t>(y) * width_ + x].style = style;
}

std::string Screen::Text() const {
  std::string text;
  for (int y = 0; y < height_; ++y) {
    std::string line;
    for (int x = 0; x < width_; ++x) line += At(x, y).character;
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tessera::cli::top
