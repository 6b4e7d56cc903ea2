#include "cli/top/top_columns.h"

#include <algorithm>

namespace tessera::cli::top {
namespace {

struct Choice {
  ColumnKind kind;
  const char* title;
  int least, most;
  int importance;  // less: sooner there
  int grows;       // less: sooner wide; those that do not have most == least
};

// From left to right.
constexpr Choice kChoices[] = {
    {ColumnKind::kName, "VGPU / PROGRAM", 18, 34, 0, 0},
    {ColumnKind::kVgpu, "VGPU", 12, 24, 4, 1},
    {ColumnKind::kGpu, "GPU", 3, 3, 7, 9},
    {ColumnKind::kPriority, "PRI", 3, 3, 5, 9},
    {ColumnKind::kWeight, "WGT", 5, 5, 9, 9},
    {ColumnKind::kState, "STATE", 8, 9, 2, 8},
    {ColumnKind::kShare, "SHARE", 11, 22, 1, 3},
    {ColumnKind::kCompute, "COMPUTE", 7, 8, 4, 8},
    {ColumnKind::kMemory, "MEMORY", 13, 24, 3, 4},
    {ColumnKind::kSwapped, "SWAP", 5, 5, 6, 9},
    {ColumnKind::kProcesses, "PROCS", 5, 5, 10, 9},
    {ColumnKind::kTime, "GPU TIME", 10, 10, 11, 9},
    {ColumnKind::kMinute, "MINUTE", 8, 60, 8, 2},
};

// The least important ones come where names have more than the least room.
constexpr int kLuxury = 10, kComfort = 8;

bool Wanted(const Choice& choice, const ColumnWishes& wishes) {
  switch (choice.kind) {
    case ColumnKind::kVgpu:
      return !wishes.tree;
    case ColumnKind::kGpu:
      return wishes.several_gpus;
    case ColumnKind::kSwapped:
      return wishes.swaps;
    case ColumnKind::kProcesses:
      return wishes.tree;
    case ColumnKind::kMinute:
      return wishes.history;
    default:
      return true;
  }
}

}  // namespace

std::vector<ListColumn> ChooseColumns(const ColumnWishes& wishes) {
  std::vector<const Choice*> by_importance;
  for (const Choice& choice : kChoices) {
    if (Wanted(choice, wishes)) by_importance.push_back(&choice);
  }
  std::ranges::sort(by_importance, {}, &Choice::importance);
  std::vector<std::pair<const Choice*, int>> chosen;  // with its width
  int left = wishes.width + 1;
  for (const Choice* choice : by_importance) {
    // The names are always there, however little of them.
    const int width = choice->importance == 0 ? std::min(choice->least, wishes.width) : choice->least;
    const int spare = choice->importance >= kLuxury ? kComfort : 0;
    if (width + 1 + spare > left) continue;
    chosen.emplace_back(choice, width);
    left -= width + 1;
  }
  std::ranges::sort(chosen, {}, [](const auto& column) { return column.first->grows; });
  for (auto& [choice, width] : chosen) {
    const int more = std::min(left, choice->most - width);
    width += std::max(more, 0);
    left -= std::max(more, 0);
  }
  std::ranges::sort(chosen, {}, [](const auto& column) { return column.first; });
  std::vector<ListColumn> columns;
  for (const auto& [choice, width] : chosen) {
    const bool flat_name = choice->kind == ColumnKind::kName && !wishes.tree;
    columns.push_back({choice->kind, flat_name ? "PROGRAM" : choice->title, width});
  }
  return columns;
}

}  // namespace tessera::cli::top
