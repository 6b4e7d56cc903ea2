#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// "1 tenant", "2 tenants"; "1 class", "2 classes". Where `one` has another plural, `more` is it. Pure.
inline std::string Counted(std::uint64_t count, std::string_view one, std::string_view more = {}) {
  const std::string number = std::to_string(count) + " ";
  if (count != 1 && !more.empty()) return number + std::string(more);
  return number + std::string(one) + (count == 1 ? "" : one.ends_with('s') ? "es" : "s");
}

}  // namespace tessera
