#include "cli/terminal/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/terminal/printable.h"

namespace tessera::cli {
using client::Json;

bool IsTerminal(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(fd) && !(no_colour && *no_colour);
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

void Print(const Table& table) {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  Print(table.Text(IsTerminal(STDOUT_FILENO), known ? size.ws_col : 0));
}

void PrintJson(const Json& json) { Print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"); }

void PrintError(const Error& error) { std::fprintf(stderr, "tessera: %s\n", Printable(error.Text()).c_str()); }

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

std::string FormatLocalTime(std::int64_t time_us, const char* format) {
  const std::time_t seconds = time_us / 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &local)};
}

}  // namespace tessera::cli
