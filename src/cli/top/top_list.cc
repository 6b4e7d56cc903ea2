#include "cli/top/top_list.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/terminal/output.h"
#include "cli/top/top_columns.h"
#include "cli/top/top_draw.h"

namespace tessera::cli::top {
namespace {

std::string Percent(double percent) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", percent);
  return text;
}

double Part(std::uint64_t some, std::uint64_t all) {
  return all > 0 ? static_cast<double>(some) / static_cast<double>(all) : 0;
}

BarValues ShareOf(const Vgpu& vgpu) { return {vgpu.now_pct / 100, vgpu.request_pct / 100, Percent(vgpu.now_pct)}; }

BarValues MemoryOf(const Vgpu& vgpu) {
  // All of the limit is its own, so nothing of it is owed in another way.
  const double used = Part(vgpu.resident, vgpu.limit);
  return {used, used, ShortSize(vgpu.resident) + "/" + ShortSize(vgpu.limit)};
}

Colour ColourOf(const std::string& state) {
  if (state == "frozen") return Colour::kCyan;
  if (state == "waiting" || state == "evicting") return Colour::kYellow;
  return state == "running" || state == "active" ? Colour::kGreen : Colour::kDefault;
}

class RowDrawing {
 public:
  RowDrawing(const Model& model, Screen& screen, const Row& row, int y)
      : model_(model), screen_(screen), row_(row), y_(y) {}

  void Draw(const ListColumn& column, int x) {
    x_ = x;
    width_ = column.width;
    if (row_.process) {
      DrawProcess(column.kind);
    } else if (row_.vgpu) {
      DrawVgpu(column.kind);
    } else if (column.kind == ColumnKind::kName) {
      Left("(in no vGPU)");
    } else if (column.kind == ColumnKind::kGpu) {
      Right(std::to_string(row_.subject.gpu));
    }
  }

 private:
  void Left(const std::string& text, Style style = {}) { screen_.PutField(x_, y_, width_, text, style); }
  void Right(const std::string& text, Style style = {}) { screen_.PutField(x_, y_, width_, text, style, true); }
  // Under the figures in the bars of the vGPUs.
  void InBar(const std::string& text) { screen_.PutField(x_, y_, width_ - 1, text, {}, true); }

  void DrawProcess(ColumnKind kind) {
    const Process& process = *row_.process;
    switch (kind) {
      case ColumnKind::kName:
        Left(Branch() + std::to_string(process.pid) + " " + process.name);
        break;
      case ColumnKind::kVgpu:
        Left(process.vgpu.empty() ? "-" : process.vgpu);
        break;
      case ColumnKind::kState:
        Left(process.state.empty() ? "-" : process.state, {.colour = ColourOf(process.state)});
        break;
      case ColumnKind::kShare:
        InBar(process.work_pct ? "work " + FormatPercent(std::round(*process.work_pct)) + "%" : "-");
        break;
      case ColumnKind::kMemory:
        InBar(ShortSize(process.resident));
        break;
      case ColumnKind::kSwapped:
        Right(ShortSize(process.swapped));
        break;
      case ColumnKind::kTime:
        Right(process.busy_us ? FormatMicroseconds(*process.busy_us) : "-");
        break;
      case ColumnKind::kProcesses:
        break;
      default:
        DrawCommon(kind);
    }
  }

  void DrawVgpu(ColumnKind kind) {
    const Vgpu& vgpu = *row_.vgpu;
    switch (kind) {
      case ColumnKind::kName:
        Left(vgpu.name, {.bold = true});
        break;
      case ColumnKind::kState:
        Left(vgpu.state, {.colour = ColourOf(vgpu.state)});
        break;
      case ColumnKind::kShare:
        DrawBar(screen_, x_, y_, width_, ShareOf(vgpu));
        break;
      case ColumnKind::kCompute:
        Right(FormatPercent(vgpu.request_pct) + ":" + FormatPercent(vgpu.limit_pct));
        break;
      case ColumnKind::kMemory:
        DrawBar(screen_, x_, y_, width_, MemoryOf(vgpu));
        break;
      case ColumnKind::kSwapped:
        Right(ShortSize(vgpu.swapped));
        break;
      case ColumnKind::kPriority:
        Right(vgpu.priority ? std::to_string(*vgpu.priority) : "-");
        break;
      case ColumnKind::kWeight:
        Right(std::to_string(vgpu.weight));
        break;
      case ColumnKind::kProcesses:
        Right(std::to_string(vgpu.processes));
        break;
      case ColumnKind::kTime:
        Right(FormatMicroseconds(vgpu.busy_us));
        break;
      default:
        DrawCommon(kind);
    }
  }

  void DrawCommon(ColumnKind kind) {
    if (kind == ColumnKind::kGpu) Right(std::to_string(row_.subject.gpu));
    if (kind == ColumnKind::kMinute) DrawHistory(screen_, x_, y_, model_.Minute(row_.subject, width_));
  }

  std::string Branch() const {
    if (!model_.arrangement().tree) return "";
    if (!screen_.unicode()) return row_.last ? "` " : "| ";
    return row_.last ? "└ " : "├ ";
  }

  const Model& model_;
  Screen& screen_;
  const Row& row_;
  const int y_;
  int x_ = 0, width_ = 0;
};

bool AtRight(ColumnKind kind) {
  return kind == ColumnKind::kGpu || kind == ColumnKind::kPriority || kind == ColumnKind::kWeight ||
         kind == ColumnKind::kCompute || kind == ColumnKind::kSwapped || kind == ColumnKind::kProcesses ||
         kind == ColumnKind::kTime;
}

}  // namespace

void DrawList(const Model& model, Screen& screen, int y, int height, bool live) {
  if (height < 1) return;
  const Snapshot& now = model.snapshot();
  const bool swaps = std::ranges::any_of(now.vgpus, [](const Vgpu& vgpu) { return vgpu.swapped > 0; });
  const auto columns = ChooseColumns({.width = screen.width(),
                                      .tree = model.arrangement().tree,
                                      .several_gpus = now.gpus.size() > 1,
                                      .swaps = swaps,
                                      .history = live});
  int x = 0;
  for (const ListColumn& column : columns) {
    screen.PutField(x, y, column.width, column.title, {}, AtRight(column.kind));
    x += column.width + 1;
  }
  screen.Paint(y, {.bold = true, .reverse = true});
  const int room = height - 1;
  const auto& rows = model.rows();
  if (rows.empty() && room > 0) {
    screen.Put(
        0, y + 1,
        model.arrangement().filter.empty() ? "no vGPUs, and no programs that use a GPU" : "no name matches the filter");
  }
  const int selected = static_cast<int>(model.selected().value_or(0));
  const int first = live ? std::max(0, selected - room + 1) : 0;
  for (int i = first; i < static_cast<int>(rows.size()) && i - first < room; ++i) {
    RowDrawing drawing(model, screen, rows[i], y + 1 + i - first);
    x = 0;
    for (const ListColumn& column : columns) {
      drawing.Draw(column, x);
      x += column.width + 1;
    }
    if (live && i == selected) screen.Paint(y + 1 + i - first, {.bold = true, .reverse = true});
  }
}

}  // namespace tessera::cli::top
