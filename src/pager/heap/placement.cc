#include "pager/heap/placement.h"

#include <algorithm>

namespace tessera::pager {
namespace {

// The first place in a free part, if it has one.
std::optional<Place> FirstPlace(const Region& region, std::uint64_t from, std::uint64_t extent, std::uint64_t bytes,
                                std::uint64_t unit, bool whole, std::uint64_t most) {
  const std::uint64_t end = from + extent, chunk_bytes = region.range.chunk_bytes;
  const std::uint64_t unit_bytes = std::min(chunk_bytes, wire::kUnitBytes);
  for (std::uint64_t begin = RoundUp(from, unit); begin <= end && end - begin >= bytes;) {
    Place place{.begin = begin, .bytes = bytes};
    const ChunkSpan span = region.SpanOf(begin, bytes);
    std::size_t blocked = span.last;
    for (std::size_t i = span.first; i < span.last && place.missing <= most; ++i) {
      if (!region.Backed(i) && whole) {
        place.missing += chunk_bytes;
        continue;
      }
      const Units needed = region.range.UnitsIn(i, begin, bytes);
      if (!region.Backed(i)) {
        place.missing += wire::CountOf(needed) * unit_bytes;
      } else if (const Units lacking = needed & ~region[i].Usable(); lacking != 0) {
        if (!region[i].MayGrow() || (whole && bytes >= kFewBytes)) blocked = i;
        if (blocked == i) break;
        place.missing += wire::CountOf(lacking) * unit_bytes;
      }
    }
    if (blocked == span.last) return place;
    begin = region.range.AddressOf(blocked + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Place> FindPlace(const Region& region, std::uint64_t bytes, bool whole) {
  const std::uint64_t unit = UnitOf(bytes);
  std::optional<Place> best;
  std::uint64_t best_extent = 0;
  bytes = RoundUp(bytes, unit);
  for (const auto& [from, extent] : region.FreeAddresses()) {
    if (extent < bytes) continue;
    const auto place = FirstPlace(region, from, extent, bytes, unit, whole, best ? best->missing : UINT64_MAX);
    if (!place ||
        (best && (place->missing > best->missing || (place->missing == best->missing && extent >= best_extent))))
      continue;
    best = place;
    best_extent = extent;
    if (place->missing == 0 && extent == bytes) break;
  }
  return best;
}

}  // namespace tessera::pager
