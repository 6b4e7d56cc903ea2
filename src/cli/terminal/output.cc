#include "cli/terminal/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace tessera::cli {
using client::Json;

bool IsTerminal(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(fd) && !(no_colour && *no_colour);
}

std::string Printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8, U+0080 to U+009F are control characters as well: c2 and the byte itself.
    const bool c1 = byte >= 0x80 && byte < 0xa0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xc2;
    if (byte < 0x20 || byte == 0x7f || c1) text[i] = '?';
    if (c1) text[i - 1] = '?';
  }
  return text;
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

void Print(const Table& table) {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  Print(table.Text(IsTerminal(STDOUT_FILENO), known ? size.ws_col : 0));
}

void PrintJson(const Json& json) { Print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"); }

void PrintError(const Error& error) { std::fprintf(stderr, "tessera: %s\n", error.Text().c_str()); }

std::string FormatPercent(double percent) {
  char text[32];
  const double rounded = std::round(percent * 10) / 10;
  std::snprintf(text, sizeof text, rounded == std::floor(rounded) ? "%.0f" : "%.1f", rounded);
  return text;
}

std::string FormatMicroseconds(std::uint64_t microseconds) {
  const std::uint64_t seconds = microseconds / 1'000'000;
  char text[64];
  if (microseconds < 1000) {
    std::snprintf(text, sizeof text, "%d us", static_cast<int>(microseconds));
  } else if (seconds < 1) {
    std::snprintf(text, sizeof text, "%d ms", static_cast<int>(microseconds / 1000));
  } else if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1f s", std::floor(microseconds / 1e5) / 10);
  } else if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%d min %d s", static_cast<int>(seconds / 60), static_cast<int>(seconds % 60));
  } else {
    std::snprintf(text, sizeof text, "%llu h %d min", static_cast<unsigned long long>(seconds / 3600),
                  static_cast<int>(seconds / 60 % 60));
  }
  return text;
}

}  // namespace tessera::cli
