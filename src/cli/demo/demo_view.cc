#include "cli/demo/demo_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/size.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"

namespace tessera::cli {
namespace {

constexpr Nanos kRedraw = 250 * kMillisecond;
constexpr Nanos kLine = kSecond;
constexpr int kBarWidth = 25;

std::string Now(const DemoRow& row) { return row.now_pct ? FormatPercent(*row.now_pct) + " %" : "-"; }

std::string TableText(const std::vector<DemoRow>& rows) {
  Table table({{"PROGRAM"},
               {"TARGET", Align::kRight},
               {"NOW", Align::kRight},
               {"SHARE OF THE GPU'S TIME"},
               {"MEMORY", Align::kRight},
               {"OF", Align::kRight}});
  for (const DemoRow& row : rows) {
    table.Add({row.name, FormatPercent(row.target_pct) + " %", Now(row), Bar(row.now_pct.value_or(0), kBarWidth),
               FormatSize(row.memory_bytes), FormatSize(row.memory_max_bytes)});
  }
  return table.Text(true);
}

std::string LineText(const std::vector<DemoRow>& rows) {
  std::string line;
  for (const DemoRow& row : rows) {
    line += "  " + row.name + " " + Now(row) + " (" + FormatPercent(row.target_pct) + ")";
  }
  return line + "\n";
}

}  // namespace

std::string Bar(double percent, int width) {
  static const char* const kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(percent, 0.0, 100.0) / 100 * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < width; ++i) bar += " ";
  return bar;
}

std::string DemoView::Seconds() const {
  char text[32];
  std::snprintf(text, sizeof text, "%5.1f s", 1e-9 * (MonotonicNow() - begin_));
  return text;
}

void DemoView::Erase() {
  if (lines_ > 0) Print("\033[" + std::to_string(lines_) + "A\033[J");
  lines_ = 0;
}

void DemoView::Note(const std::string& text) {
  if (silent_) return;
  Erase();
  Print(Seconds() + "  " + text + "\n");
  std::fflush(stdout);
}

bool DemoView::Due() const { return !silent_ && MonotonicNow() - shown_ >= (live_ ? kRedraw : kLine); }

void DemoView::Show(const std::vector<DemoRow>& rows) {
  shown_ = MonotonicNow();
  if (silent_) return;
  if (live_) {
    Erase();
    const std::string text = TableText(rows);
    lines_ = static_cast<int>(std::ranges::count(text, '\n'));
    Print(text);
  } else {
    Print(Seconds() + LineText(rows));
  }
  std::fflush(stdout);
}

}  // namespace tessera::cli
