#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::soft::ptx {

// The fundamental types of PTX that the soft GPU knows (PTX ISA 5.2).
enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF16x2,
  kBF16x2,
  kF32,
  kF64,
};

// "u32" as it stands behind the dot; kNone for what is not a type.
Type ParseType(std::string_view name);

unsigned BytesOf(Type type);  // 0 for kNone and kPred
bool IsSigned(Type type);     // s8 … s64
bool IsInteger(Type type);    // b, u and s
bool IsFloat(Type type);      // f16 and everything after it

// The untyped type of the same width, so that tables need one row for it: s32 and f32 give b32.
Type Untyped(Type type);

}  // namespace tessera::soft::ptx
