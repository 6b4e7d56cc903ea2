#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "soft/ptx/op/emitter.h"
#include "soft/ptx/op/float_mode.h"
#include "soft/ptx/syntax/type.h"

namespace tessera::soft::ptx {

// The modifiers of a statement (.lo, .s32, .ftz …) that were not taken yet. They are taken in any order, which is more
// than PTX allows.
class Modifiers {
 public:
  // `emitter` gets the errors, and outlives the object.
  explicit Modifiers(Emitter& emitter) : emitter_(emitter) {}

  void Begin(const std::vector<std::string_view>& modifiers) { modifiers_ = modifiers; }
  bool Empty() const { return modifiers_.empty(); }

  bool Take(std::string_view modifier);
  // The first of `names` that is there, or `otherwise`.
  int TakeOneOf(std::span<const std::string_view> names, int otherwise);
  Type TakeType();  // the first that is a type, kNone (and an error) if there is none
  void Ignore(std::span<const std::string_view> modifiers);
  std::uint32_t TakeRounding();  // .rn .rz .rm .rp and .ftz as bits of the float mode

 private:
  Emitter& emitter_;
  std::vector<std::string_view> modifiers_;
};

}  // namespace tessera::soft::ptx
