#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// How many characters must be added, removed, replaced or swapped with their neighbour to turn one into the other.
std::size_t EditDistance(std::string_view from, std::string_view to);

// The candidate that somebody who typed `word` most likely meant; empty if none is close.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera::cli
