#include "server/devices/nvlink_groups.h"

#include <algorithm>
#include <numeric>

namespace tessera::server {

std::vector<std::optional<std::uint32_t>> NvlinkGroups(
    std::uint32_t gpus, const std::function<bool(std::uint32_t a, std::uint32_t b)>& joined) {
  std::vector<std::uint32_t> lowest(gpus);
  std::iota(lowest.begin(), lowest.end(), 0U);
  for (std::uint32_t b = 1; b < gpus; ++b) {
    for (std::uint32_t a = 0; a < b; ++a) {
      if (lowest[a] == lowest[b] || !joined(a, b)) continue;
      const auto [to, from] = std::minmax(lowest[a], lowest[b]);
      std::ranges::replace(lowest, std::uint32_t{from}, std::uint32_t{to});
    }
  }
  std::vector<std::optional<std::uint32_t>> groups(gpus);
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    if (std::ranges::count(lowest, lowest[gpu]) > 1) groups[gpu] = lowest[gpu];
  }
  return groups;
}

}  // namespace tessera::server
