#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// The candidate closest to the mistyped `word`; empty if none is close.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera::cli
