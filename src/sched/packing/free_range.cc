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
