#include "pager/heap/placement.h"

namespace tessera::pager {

std::optional<Place> FindPlace(const Region& region, std::uint64_t bytes) {
  const std::uint64_t unit = UnitOf(bytes);
  std::optional<Place> best;
  std::uint64_t best_extent = 0;
  bytes = RoundUp(bytes, unit);
  for (const auto& [from, extent] : region.FreeAddresses()) {
    const std::uint64_t begin = RoundUp(from, unit);
    if (extent < bytes || begin - from > extent - bytes) continue;
    Place place{.begin = begin, .bytes = bytes, .chunks = region.SpanOf(begin, bytes)};
    for (std::size_t i = place.chunks.first; i < place.chunks.last; ++i) place.missing += region.Backed(i) ? 0 : 1;
    if (best && (place.missing > best->missing || (place.missing == best->missing && extent >= best_extent))) continue;
    best = place;
    best_extent = extent;
    if (place.missing == 0 && extent == bytes) break;
  }
  return best;
}

}  // namespace tessera::pager
