#include "soft/ptx/syntax/type.h"

#include <array>

namespace tessera::soft::ptx {
namespace {

struct Row {
  std::string_view name;
  unsigned bytes;
};

// Indexed by Type.
constexpr std::array<Row, 20> kTypes = {{{"", 0},     {"pred", 0},  {"b8", 1},     {"b16", 2}, {"b32", 4},
                                         {"b64", 8},  {"u8", 1},    {"u16", 2},    {"u32", 4}, {"u64", 8},
                                         {"s8", 1},   {"s16", 2},   {"s32", 4},    {"s64", 8}, {"f16", 2},
                                         {"bf16", 2}, {"f16x2", 4}, {"bf16x2", 4}, {"f32", 4}, {"f64", 8}}};
static_assert(static_cast<std::size_t>(Type::kF64) + 1 == kTypes.size());

}  // namespace

Type ParseType(std::string_view name) {
  for (std::size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<Type>(i);
  }
  return Type::kNone;
}

unsigned BytesOf(Type type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
bool IsSigned(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
bool IsInteger(Type type) { return type >= Type::kB8 && type <= Type::kS64; }
bool IsFloat(Type type) { return type >= Type::kF16; }

Type Untyped(Type type) {
  switch (BytesOf(type)) {
    case 1:
      return Type::kB8;
    case 2:
      return Type::kB16;
    case 4:
      return Type::kB32;
    case 8:
      return Type::kB64;
    default:
      return type;
  }
}

}  // namespace tessera::soft::ptx
