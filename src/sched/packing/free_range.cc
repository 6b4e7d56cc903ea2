#include "sched/packing/free_range.h"

#include <algorithm>

namespace tessera::sched {
namespace {

// The free ranges, in their order.
std::vector<SmRange> Gaps(std::vector<SmRange> taken) {
  std::ranges::sort(taken, {}, &SmRange::from);
  taken.push_back({.from = kWhole});
  std::vector<SmRange> gaps;
  Part at = 0;
  for (const SmRange& range : taken) {
    if (range.from > at) gaps.push_back({at, range.from - at});
    at = std::max(at, range.End());
  }
  return gaps;
}

}  // namespace

bool IsFree(const std::vector<SmRange>& taken, const SmRange& range) {
  return range.from >= 0 && range.End() <= kWhole && std::ranges::none_of(taken, [&](const SmRange& other) {
           return range.from < other.End() && other.from < range.End();
         });
}

std::optional<Part> FirstFree(std::vector<SmRange> taken, Part width) {
  for (const SmRange& gap : Gaps(std::move(taken))) {
    if (gap.width >= width) return gap.from;
  }
  return {};
}

Part WidestFree(std::vector<SmRange> taken) {
  Part widest = 0;
  for (const SmRange& gap : Gaps(std::move(taken))) widest = std::max(widest, gap.width);
  return widest;
}

}  // namespace tessera::sched
