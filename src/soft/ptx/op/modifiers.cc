#include "soft/ptx/op/modifiers.h"

#include <algorithm>
#include <array>

namespace tessera::soft::ptx {

bool Modifiers::Take(std::string_view modifier) {
  const auto found = std::ranges::find(modifiers_, modifier);
  if (found == modifiers_.end()) return false;
  modifiers_.erase(found);
  return true;
}

int Modifiers::TakeOneOf(std::span<const std::string_view> names, int otherwise) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (Take(names[i])) return static_cast<int>(i);
  }
  return otherwise;
}

void Modifiers::Ignore(std::span<const std::string_view> modifiers) {
  for (std::string_view modifier : modifiers) Take(modifier);
}

Type Modifiers::TakeType() {
  for (auto i = modifiers_.begin(); i != modifiers_.end(); ++i) {
    if (const Type type = ParseType(*i); type != Type::kNone) {
      modifiers_.erase(i);
      return type;
    }
  }
  emitter_.Refuse();
  return Type::kNone;
}

std::uint32_t Modifiers::TakeRounding() {
  constexpr std::array<std::string_view, 4> kModes = {"rn", "rz", "rm", "rp"};
  constexpr std::array<std::uint32_t, 4> kBits = {0, kRoundToZero, kRoundDown, kRoundUp};
  const std::uint32_t bits = kBits[static_cast<std::size_t>(TakeOneOf(kModes, 0))];
  return bits | (Take("ftz") ? kFlushSubnormals : 0);
}

}  // namespace tessera::soft::ptx
