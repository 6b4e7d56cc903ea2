#include "cli/top/top_draw.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::cli::top {

std::string ShortSize(std::uint64_t bytes) {
  static constexpr char kUnits[] = "BKMGTPE";
  double size = static_cast<double>(bytes);
  int unit = 0;
  // A figure that would be rounded to four digits gets the next unit.
  for (; size >= 999.5; size /= 1024) ++unit;
  if (unit == 0) return std::to_string(bytes) + (bytes == 0 ? "" : "B");
  char text[16];
  const bool whole = size >= 99.95 || std::abs(size - std::round(size)) < 0.05;
  std::snprintf(text, sizeof text, whole ? "%.0f%c" : "%.1f%c", size, kUnits[unit]);
  return text;
}

void DrawBar(Screen& screen, int x, int y, int width, const BarValues& bar) {
  const int inside = width - 2;
  if (inside < 1) return;
  const auto columns = [inside](double part) {
    return static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * inside));
  };
  const int used = columns(bar.used), promised = columns(bar.promised);
  const std::string text = bar.text.substr(0, inside);  // ASCII: it is ours
  const int text_begin = inside - static_cast<int>(text.size());
  screen.Put(x, y, "[", {.bold = true});
  for (int i = 0; i < inside; ++i) {
    const bool full = i < used, owed = i < promised;
    const Style style{.colour = full && owed ? Colour::kGreen
                                : full       ? Colour::kYellow
                                : owed       ? Colour::kBlue
                                             : Colour::kDefault};
    const char sign = full && owed ? '|' : full ? '+' : owed ? '.' : ' ';
    screen.Put(x + 1 + i, y, std::string(1, i >= text_begin ? text[i - text_begin] : sign), style);
  }
  screen.Put(x + width - 1, y, "]", {.bold = true});
}

void DrawHistory(Screen& screen, int x, int y, const std::vector<std::optional<double>>& values) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kSigns[] = {"_", ".", "-", ":", "=", "+", "*", "#"};
  for (const auto& value : values) {
    if (value) {
      const int level = static_cast<int>(std::clamp(*value / 100 * 8, 0.0, 7.0));
      screen.Put(x, y, screen.unicode() ? kBlocks[level] : kSigns[level], {.colour = Colour::kCyan});
    }
    ++x;
  }
}

}  // namespace tessera::cli::top
