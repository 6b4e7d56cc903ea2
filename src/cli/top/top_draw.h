// Drawing of figures: bars, histories of blocks, and sizes in five columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/top_screen.h"

namespace tessera::cli::top {

// "128M", "1.5G", "0": at most five characters.
std::string ShortSize(std::uint64_t bytes);

// The fill of a bar in fractions (0 to 1; more is full), and the text at its right end.
struct BarValues {
  double used = 0;
  double promised = 0;  // use beyond it, and its unused part, have signs of their own
  std::string text;
};
// "[||||++   61.0%]": | is used of what was promised, + is used beyond it, . is promised and not used.
void DrawBar(Screen& screen, int x, int y, int width, const BarValues& bar);

// A column for each value of 0 to 100, nothing where there is none.
void DrawHistory(Screen& screen, int x, int y, const std::vector<std::optional<double>>& values);

}  // namespace tessera::cli::top
