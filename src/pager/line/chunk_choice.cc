#include "pager/line/chunk_choice.h"

#include <algorithm>
#include <utility>

#include "wire/line.h"

namespace tessera::pager {

// Pinned ones are hotter than any. Ties go by address, so that neighbours move together.
ChunkChoice::Indices ChunkChoice::Coldest(const ChunkTable& chunks, std::size_t most, Nanos now) const {
  const Region& region = chunks.large();
  Indices coldest;
  for (const std::size_t i : region.WithMemory()) {
    if (region[i].MayGo()) coldest.push_back(i);
  }
  const std::vector<Heat> heats = heat_.Heats(chunks, now);
  const std::size_t count = std::min(most, coldest.size());
  std::partial_sort(coldest.begin(), coldest.begin() + static_cast<std::ptrdiff_t>(count), coldest.end(),
                    [&](std::size_t a, std::size_t b) { return heats[a] != heats[b] ? heats[a] < heats[b] : a < b; });
  coldest.resize(count);
  return coldest;
}

ChunkChoice::Indices ChunkChoice::MostHoles(const ChunkTable& chunks, std::size_t most) {
  const Region& region = chunks.large();
  Indices holed;
  for (const std::size_t i : region.WithMemory()) {
    if (region[i].Holes() != 0) holed.push_back(i);
  }
  const std::size_t count = std::min(most, holed.size());
  std::ranges::sort(holed, [&](std::size_t a, std::size_t b) {
    const std::uint32_t in_a = wire::CountOf(region[a].Holes()), in_b = wire::CountOf(region[b].Holes());
    return in_a != in_b ? in_a > in_b : a < b;
  });
  holed.resize(count);
  return holed;
}

ChunkChoice::Indices ChunkChoice::Hottest(const ChunkTable& chunks, Nanos now) const {
  const Region& region = chunks.large();
  Indices hottest;
  for (const std::size_t i : region.WithMemory()) {
    const Chunk& chunk = region[i];
    if (chunk.MayCome()) hottest.push_back(i);
  }
  const std::vector<Heat> heats = heat_.Heats(chunks, now);
  std::ranges::sort(hottest, [&](std::size_t a, std::size_t b) {
    if (region[a].squeezed != region[b].squeezed) return region[a].squeezed;
    return heats[a] != heats[b] ? heats[a] > heats[b] : a < b;
  });
  return hottest;
}

std::set<std::size_t> ChunkChoice::Whole(const ChunkTable& chunks, const Indices& indices, std::uint32_t holes) {
  const Region& region = chunks.large();
  std::vector<std::pair<std::uint32_t, std::size_t>> fewest;
  for (const std::size_t i : indices) {
    if (!region[i].reserved && (!region[i].squeezed || region[i].live == wire::kAllUnits))
      fewest.emplace_back(wire::CountOf(region[i].HolesOut()), i);
  }
  std::ranges::sort(fewest);
  std::set<std::size_t> whole;
  for (const auto& [count, i] : fewest) {
    if (holes != wire::kAnyHoles && count > holes) break;
    if (holes != wire::kAnyHoles) holes -= count;
    whole.insert(i);
  }
  return whole;
}

}  // namespace tessera::pager
