// What figures look like: bars and lines of blocks, and sizes in five columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/top_screen.h"

namespace tessera::cli::top {

// "128M", "1.5G", "0": at most five characters.
std::string ShortSize(std::uint64_t bytes);

// How much of a bar is full, as parts of it (0 to 1, more is full), and what stands in it at the right.
struct BarValues {
  double used = 0;
  double promised = 0;  // what is used beyond it is another sign; so is what of it is not used
  std::string text;
};
// "[||||++   61.0%]": | is used of what was promised, + is used beyond it, . is promised and not used.
void DrawBar(Screen& screen, int x, int y, int width, const BarValues& bar);

// A column for each value of 0 to 100, nothing where there is none.
void DrawHistory(Screen& screen, int x, int y, const std::vector<std::optional<double>>& values);

}  // namespace tessera::cli::top
