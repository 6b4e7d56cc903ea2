#include "cli/top/top_view.h"

#include <algorithm>
#include <cstdio>

#include "base/text/counted.h"
#include "cli/terminal/output.h"
#include "cli/top/top_draw.h"
#include "cli/top/top_list.h"

namespace tessera::cli::top {
namespace {

void DrawHead(const Model& model, Screen& screen) {
  const Snapshot& now = model.snapshot();
  std::string text = "tessera top";
  if (now.at > 0) {
    text += " - " + Counted(now.vgpus.size(), "vGPU") + ", " + Counted(now.processes.size(), "process");
    const auto frozen = std::ranges::count_if(now.processes, &Process::frozen_by_operator);
    if (frozen > 0) text += " (" + std::to_string(frozen) + " frozen)";
  }
  if (const std::string& filter = model.arrangement().filter; !filter.empty()) text += ", filter: " + filter;
  screen.Put(0, 0, text, {.bold = true});
  if (now.at == 0) return;
  const std::string clock = FormatLocalTime(now.time_us, "%H:%M:%S");
  screen.Put(screen.width() - static_cast<int>(clock.size()), 0, clock);
}

BarValues BusyOf(const Gpu& gpu) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", gpu.busy_pct);
  return {gpu.busy_pct / 100, gpu.busy_pct / 100, text};
}

BarValues MemoryOf(const Gpu& gpu) {
  const double total = gpu.total > 0 ? static_cast<double>(gpu.total) : 1;
  const double used = static_cast<double>(gpu.used) / total, promised = static_cast<double>(gpu.promised) / total;
  return {used, std::max(used, promised), ShortSize(gpu.used) + "/" + ShortSize(gpu.total)};
}

// "GPU 0 busy [...] memory [...] minute"; and what there is to say of it on a second line, if there is one.
void DrawGpu(const Model& model, const Gpu& gpu, Screen& screen, int y, bool two_lines, bool live) {
  int x = screen.Put(0, y, "GPU " + std::to_string(gpu.index) + " ", {.bold = true});
  const int begin = x;
  // The bars get a third of the line each, and the minute what is left.
  const int bar = std::clamp((screen.width() - x) / 3 - 6, 8, 60);
  x = screen.Put(x, y, "busy ");
  DrawBar(screen, x, y, bar, BusyOf(gpu));
  x = screen.Put(x + bar, y, " mem ");
  DrawBar(screen, x, y, bar, MemoryOf(gpu));
  x += bar + 1;
  if (live && screen.width() - x >= 8)
    DrawHistory(screen, x, y, model.Minute({Subject::kGpu, gpu.index, "", 0}, std::min(screen.width() - x, 60)));
  if (!two_lines) return;
  std::string text = gpu.name + (gpu.control.empty() ? "" : ", " + gpu.control);
  text += "; promised " + ShortSize(gpu.promised) + " and " + FormatPercent(gpu.requested_pct) + "% of time";
  if (gpu.swaps) text += "; swap " + ShortSize(gpu.swap_used) + "/" + ShortSize(gpu.swap_max);
  if (gpu.swap_prepared > 0) text += ", " + ShortSize(gpu.swap_prepared) + " prepared";
  screen.PutField(begin, y + 1, screen.width() - begin, text);
}

// From line 1 on; the line after them.
int DrawGpus(const Model& model, Screen& screen, bool live) {
  const auto& gpus = model.snapshot().gpus;
  const int count = static_cast<int>(gpus.size());
  const int room = live ? std::max((screen.height() - 3) / 2, screen.height() >= 5 ? 1 : 0) : 2 * count;
  const bool two_lines = 2 * count <= room;
  const int shown = std::min(count, two_lines ? count : room);
  int y = 1;
  for (int i = 0; i < shown; ++i, y += two_lines ? 2 : 1) {
    // In the last line there is room for: that there are more.
    if (i == shown - 1 && shown < count && shown > 1) {
      screen.Put(0, y, "and " + Counted(count - i, "other GPU") + " (no room to show them)");
    } else {
      DrawGpu(model, gpus[i], screen, y, two_lines, live);
    }
  }
  return y;
}

constexpr std::pair<const char*, const char*> kHints[] = {
    {"f", "Freeze"}, {"+ -", "Priority"}, {"s", "Set"},  {"e", "Evict"}, {"o", "Sort"},
    {"t", "Tree"},   {"/", "Filter"},     {"?", "Help"}, {"q", "Quit"},
};

void DrawHints(Screen& screen, int y) {
  int x = 0;
  for (const auto& [key, what] : kHints) {
    x = screen.Put(x, y, key, {.bold = true});
    x = screen.Put(x, y, what, {.colour = Colour::kCyan, .reverse = true});
    x = screen.Put(x, y, " ");
  }
}

constexpr const char* kHelp[] = {
    "up down j k    select            PgUp PgDn g G   page, first, last",
    "f              freeze or thaw the selected vGPU or process",
    "+ ] and - [    raise or lower the vGPU's priority (a lower number first)",
    "s              change the vGPU: options of 'tessera vgpu set NAME'",
    "e              evict: move its memory to host memory",
    "o > <          sort by the next column, or the previous one  I  reverse",
    "t              group processes by vGPU, or show all in one list",
    "/              filter by name; Escape shows all",
    "q              quit",
    "",
    "SHARE   | used of what is promised   + used beyond it   . promised, unused",
    "        of a process: percent of the time in which it had or awaited work",
    "COMPUTE REQUEST:LIMIT in percent    PRI  lower goes first    WGT  weight",
    "MEMORY  on the GPU, of its limit    SWAP  in host memory",
    "STATE   of a vGPU: running, waiting (it has work, and others run) or idle",
    "MINUTE  SHARE over the last minute",
};

void DrawHelp(Screen& screen) {
  screen.Put(0, 0, "tessera top: keys. Press any key to go back.", {.bold = true});
  int y = screen.height() > static_cast<int>(std::size(kHelp)) + 1 ? 2 : 1;
  for (const char* line : kHelp) screen.Put(0, y++, line);
}

// Over the last lines of the list, as many as it needs, but no more than a third of the picture.
void DrawMessage(const Session::Status& status, Screen& screen, int y) {
  const int width = screen.width();
  const int length = static_cast<int>(Characters(status.text).size());
  const int lines = std::clamp((length + width - 1) / width, 1, std::max(screen.height() / 3, 1));
  const Style style{.colour = status.wrong ? Colour::kRed : Colour::kDefault, .bold = status.wrong};
  for (int i = 0; i < lines; ++i) {
    const int line = y - lines + 1 + i;
    screen.PutField(0, line, width, "");
    screen.Put(-i * width, line, status.text, style);
  }
  if (length > lines * width) screen.Put(width - 1, y, screen.unicode() ? "…" : "~", style);
}

std::optional<Cursor> DrawStatus(const Session& session, Screen& screen, int y) {
  const auto status = session.status();
  if (!status.typing) {
    DrawMessage(status, screen, y);
    return std::nullopt;
  }
  const int length = static_cast<int>(Characters(status.text).size());
  // While the user types, the end of the text is visible.
  const int hidden = std::max(length + 1 - screen.width(), 0);
  screen.PutField(0, y, screen.width(), "");
  screen.Put(-hidden, y, status.text, {.bold = true});
  return Cursor{std::min(length - hidden, screen.width() - 1), y};
}

}  // namespace

std::optional<Cursor> Draw(Session& session, Screen& screen) {
  if (session.mode() == Session::Mode::kHelp) {
    DrawHelp(screen);
    return std::nullopt;
  }
  const int height = screen.height();
  const bool hints = height >= 10;
  const int status_line = height - (hints ? 2 : 1);
  DrawHead(session.model, screen);
  int y = DrawGpus(session.model, screen, true);
  if (height >= 16) ++y;
  session.SetPage(status_line - y - 1);
  if (session.model.snapshot().at > 0) DrawList(session.model, screen, y, status_line - y, true);
  if (hints) DrawHints(screen, height - 1);
  return DrawStatus(session, screen, status_line);
}

std::string Text(const Model& model, int width, bool unicode) {
  const int gpus = static_cast<int>(model.snapshot().gpus.size());
  const int rows = std::max(static_cast<int>(model.rows().size()), 1);
  Screen screen(width, 1 + 2 * gpus + 1 + 1 + rows, unicode);
  DrawHead(model, screen);
  const int y = DrawGpus(model, screen, false) + 1;
  DrawList(model, screen, y, screen.height() - y, false);
  return screen.Text();
}

}  // namespace tessera::cli::top
