#include "cli/nearest.h"

#include <algorithm>

#include "base/edit_distance.h"

namespace tessera::cli {

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // A third of the word may be wrong; beyond that, a guess confuses more than it helps.
  std::size_t closest = std::max<std::size_t>(word.size() / 3, 1) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < closest) {
      closest = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tessera::cli
