#include "pager/chunks/extents.h"

#include <iterator>

namespace tessera::pager {

bool Extents::Has(std::uint64_t begin, std::uint64_t bytes) const {
  const auto behind = free_.upper_bound(begin);
  if (behind == free_.begin()) return false;
  const auto around = std::prev(behind);
  return around->second >= bytes && begin - around->first <= around->second - bytes;
}

void Extents::Take(std::uint64_t begin, std::uint64_t bytes) {
  const auto around = std::prev(free_.upper_bound(begin));
  const std::uint64_t before = begin - around->first;
  const std::uint64_t after = around->second - before - bytes;
  if (before > 0) {
    around->second = before;
  } else {
    free_.erase(around);
  }
  if (after > 0) free_.emplace(begin + bytes, after);
}

void Extents::Give(std::uint64_t begin, std::uint64_t bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace_hint(next, begin, bytes);
}

}  // namespace tessera::pager
