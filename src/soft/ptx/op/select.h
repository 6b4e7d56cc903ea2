// From a type of PTX to the handler for the C++ type that computes it.
#pragma once

#include <cstdint>

#include "soft/ptx/program.h"
#include "soft/ptx/syntax/type.h"

namespace tessera::soft::ptx {

// make.operator()<T>() for the integer types of 16 to 64 bits, nullptr for all else: arithmetic has no 8-bit form.
template <typename Make>
Instruction::Handler SelectInteger(Type type, Make make) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return make.template operator()<std::uint16_t>();
    case Type::kB32:
    case Type::kU32:
      return make.template operator()<std::uint32_t>();
    case Type::kB64:
    case Type::kU64:
      return make.template operator()<std::uint64_t>();
    case Type::kS16:
      return make.template operator()<std::int16_t>();
    case Type::kS32:
      return make.template operator()<std::int32_t>();
    case Type::kS64:
      return make.template operator()<std::int64_t>();
    default:
      return nullptr;
  }
}

// The same where the sign makes no difference.
template <typename Make>
Instruction::Handler SelectBits(Type type, Make make) {
  switch (IsInteger(type) ? BytesOf(type) : 0) {
    case 2:
      return make.template operator()<std::uint16_t>();
    case 4:
      return make.template operator()<std::uint32_t>();
    case 8:
      return make.template operator()<std::uint64_t>();
    default:
      return nullptr;
  }
}

template <typename Make>
Instruction::Handler SelectFloat(Type type, Make make) {
  switch (type) {
    case Type::kF32:
      return make.template operator()<float>();
    case Type::kF64:
      return make.template operator()<double>();
    default:
      return nullptr;
  }
}

// make.operator()<space>() for each space.
template <typename Make>
Instruction::Handler SelectSpace(Space space, Make make) {
  switch (space) {
    case Space::kGeneric:
      return make.template operator()<Space::kGeneric>();
    case Space::kGlobal:
      return make.template operator()<Space::kGlobal>();
    case Space::kShared:
      return make.template operator()<Space::kShared>();
    case Space::kLocal:
      return make.template operator()<Space::kLocal>();
    case Space::kFrame:
      return make.template operator()<Space::kFrame>();
    case Space::kParam:
      return make.template operator()<Space::kParam>();
  }
  return nullptr;
}

}  // namespace tessera::soft::ptx
